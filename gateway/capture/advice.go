package capture

import "fmt"

// advice says what to change against the cause.
func (a *account) advice(c cause) string {
	class := a.r.Class
	switch c {
	case causeOthersPrefill, causeHeldBack:
		if n := a.costliest(); n != nil && n.Class != class && n.Class != "" {
			return fmt.Sprintf("Give %s a shorter token_goal, or the class %s a smaller engine.background_stretch or engine.batch_stretch; a prompt_tokens_max there refuses such prompts.", class, n.Class)
		}
		return fmt.Sprintf("Move such prompts to another class: prompt_tokens_max with oversized demote for %s, or the header x-forebay-class set by their sender; a smaller engine.step_budget makes each step shorter.", class)
	case causePrepare:
		if a.r.Render > a.r.Tokenize {
			return "The model's chat template does much work: a simpler one, or a shorter conversation; engine.prompt_render_budget bounds it."
		}
	case causeQueue:
		return queueAdvice(a.r.WaitReason, class)
	}
	return advices[c]
}

// costliest is the costliest neighbour that computed a prompt, nil for none.
func (a *account) costliest() *NeighbourView {
	for i := range a.v.Neighbours {
		if n := &a.v.Neighbours[i]; n.PrefillTokens > 0 {
			return n
		}
	}
	return nil
}

func queueAdvice(why, class string) string {
	switch why {
	case "share":
		return "Its tenant sends more than its weight allows: raise that tenant's weight, or have it send less at once."
	case "class_cap":
		return "Raise the cap of the class " + class + ", or send less in it."
	case "sequences":
		return "Raise admission.running_sequences_max and engine.sequences_max if memory allows, or add a replica."
	case "memory":
		return "Raise engine.kv_bytes, lower the classes' output_tokens_max, or add a replica."
	case waitPaused:
		return "Open the class again: forebay queue open " + class + ", or the page /debug/queue."
	case "engine":
		return "See why the engine was away: its log, and /readyz."
	}
	return "There is more work than the engine can do in time: add a replica, or refuse earlier with a shorter wait_limit for " + class + "."
}

var advices = [causeCount]string{
	causeBody:         "Its sender or the network is slow; gateway.timeouts.body_limit bounds it.",
	causePrepare:      "Long prompts are tokenized anew each time unless engine.tokens_cache_bytes holds them.",
	causeReserve:      "Look at the store of budgets; budget.decision_limit bounds the wait, budget.lease makes it rarer.",
	causeOwnPrefill:   "A shorter prompt, or one that begins as others do, so that the cache has it, is what helps.",
	causeOwnDecode:    "The answer is long or the model slow here: max_tokens, a smaller or quantized model, or more cores.",
	causeOthersDecode: "Many answers share each step: lower admission.running_sequences_max for faster ones, or add a replica.",
	causeGap:          "The engine's host is busy: give it cores of its own, and look at /debug/pprof/.",
	causeGrammar:      "A simpler schema is compiled and followed faster; engine.grammar has the memory for it: cache_bytes_max, masks_max, memory_bytes_max.",
	causeGivenUp:      "More urgent work came again and again: engine.background_floor is what is promised to it.",
	causePages:        "Raise engine.kv_bytes, or lower admission.running_sequences_max.",
	causePlaces:       "Raise engine.sequences_max to admission.running_sequences_max at least.",
	causePrefix:       "This is cheaper than computing it twice; only a shorter shared beginning would be quicker.",
	causePreempted:    "Memory for keys and values was short: raise engine.kv_bytes, or lower admission.running_sequences_max or the classes' output_tokens_max.",
	causeReader:       "Look at that client, its proxy or its network; the engine was not the reason.",
	causeHandover:     "The gateway's host is busy: look at /debug/pprof/ and at the CPU limits.",
	causeToEngine:     "The engine or its host was busy: look at its log and at the CPU limits of both processes.",
	causeFrozen:       "Something stopped the process: a signal (SIGSTOP; kill -CONT ends it), a debugger, the freezer of its control group, or a pause of the whole virtual machine. Who did it is in the logs of the host.",
	causeTaken:        "Give the engine processors of its own (a cpuset, or in Kubernetes requests equal to limits with a static CPU policy), or move the other programs; engine.threads must not be more than the processors that are left to it.",
	causeStolen:       "The host sells its processors more than once: ask for dedicated ones, or move this machine.",
	causeThrottled:    "Raise or remove the CPU limit (cpu.max, resources.limits.cpu), or lower engine.threads to what it allows.",
	causePaging:       "Memory is short on this machine: give it more, lower engine.kv_bytes, or take a smaller model; swap must be off.",
	causeSibling:      "What it did there is in that replica's own record, under the same trace id: forebay trace show TRACE --admin ADDRESS.",
	causeUnexplained:  "Steps from then are no longer kept, or engine.step_records_off is set; capture.steps_kept keeps more.",
}
