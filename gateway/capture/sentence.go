package capture

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
)

// account is what a sentence is made from.
type account struct {
	r       *telemetry.Record
	v       *View
	life    *life
	within  scope
	causes  causes    // of the time within the scope
	culprit requester // of a brief view: the largest other request in the slowest step
	busiest string    // who took the processors, "" for unknown
	running bool
}

// sentence tells a person where the time of a request went, who caused it, and
// what to change. usual says that the request was kept without a reason of its own.
func (a *account) sentence(usual bool) string {
	c := a.causes.largest()
	end := causeNothing
	if !a.running {
		end = endOf(a.r)
	}
	switch {
	case a.running:
		return fmt.Sprintf("It still runs, since %s, and is now in %s; %s. %s", short(a.life.wall()), phrase(a.life.last), a.share(c), a.advice(c))
	case end == causeRefused:
		return a.refused()
	case end == causeLoading:
		return fmt.Sprintf("It was refused after %s, since the model is still being downloaded. /readyz says how far that is; forebay model pull before a start makes it quick.", short(a.life.wall()))
	case end == causeReader:
		return fmt.Sprintf("It was cut after %s, since its client did not read for longer than gateway.timeouts.write_stall_limit allows; %s got through. Look at that client or its network.", short(a.life.wall()), tokens(a.r.CompletionTokens))
	case end == causeInvalid:
		return fmt.Sprintf("The request itself was wrong (%s), and was refused after %s. Its sender must change it.", a.r.ErrorKind, short(a.life.wall()))
	case end == causeEngineLost && a.r.Kernel != "":
		return fmt.Sprintf("The GPU failed in kernel %s when it had run for %s, %s. If that comes again, docs/gpu.md says what to keep; /readyz says whether the engine is back.", a.r.Kernel, short(a.life.wall()), a.soFar())
	case end != causeNothing:
		return fmt.Sprintf(endingTexts[end], short(a.life.wall()), a.soFar(), a.share(c), a.advice(c))
	case usual && readsSlowly(a.r):
		return "It missed no goal here, but its client has not got all of it. " + a.reader()
	case usual:
		if c == causeOwnPrefill && a.v.asUsual() || c == causeOwnDecode && a.v.asUsual() {
			return fmt.Sprintf("%s; %s.", a.v.usualText(), a.share(c)) // there is nothing to mend
		}
		return fmt.Sprintf("%s; %s. %s", a.v.usualText(), a.share(c), a.advice(c))
	}
	if readsSlowly(a.r) && c != causeReader {
		return capital(a.share(c)) + ". " + a.advice(c) + " " + a.reader()
	}
	return capital(a.share(c)) + ". " + a.advice(c)
}

// stalledShare is the part of an answer's time, in percent, from which on a full
// receive window says that the client reads slowly.
const stalledShare = 30

// readsSlowly tells that the answer waits in the buffers of the socket for its client.
func readsSlowly(r *telemetry.Record) bool {
	answering := r.Finished - r.FirstWrite
	return r.Unread > 0 && r.FirstWrite != 0 && int64(r.Stalled)*100 >= answering*stalledShare
}

// reader tells about a client that reads slowly.
func (a *account) reader() string {
	return fmt.Sprintf("Its client reads slowly: its receive window was full for %s of the answer, and %s of it had not got through at the end. %s", short(a.r.Stalled), counted(a.r.Unread, "byte"), advices[causeReader])
}

// endingTexts say how a request ended that was not refused. They take the time,
// how far it came, where most of the time went, and advice on that.
var endingTexts = [causeCount]string{
	causeEngineLost:   "The engine was lost or not there when it had run for %s, %s; until then %s.%.0[4]s The log of the engine says why; forebay_engine_losses_total and /readyz say whether it is back.",
	causeEngineFailed: "The engine failed it after %s, %s; until then %s.%.0[4]s Its id finds the error in the log; if it comes again with the same prompt, keep the model's file and that prompt for a report.",
	causeClientLeft:   "Its client left after %s, %s; until then %s. %s",
	causeDeadline:     "Its client's own deadline was over after %s, %s; until then %s. %s",
	causeDraining:     "This server was stopped after %s, %s; until then %s.%.0[4]s A longer drain_limit lets streams end.",
	causeInternal:     "The gateway failed it after %s, %s; until then %s.%.0[4]s Its id finds the error in the log.",
}

// soFar says how far the request came.
func (a *account) soFar() string {
	switch {
	case a.r.Dispatched == 0:
		return "before it was given to the engine"
	case a.r.CompletionTokens == 0:
		return "before its first token"
	}
	return "with " + tokens(a.r.CompletionTokens) + " of its answer"
}

// share says how much of the time went to the cause, and who caused it.
func (a *account) share(c cause) string {
	return fmt.Sprintf("%s of %s%s went to %s", short(a.causes[c]), short(a.life.within(a.within)), scopeNames[a.within], a.what(c))
}

var scopeNames = [...]string{scopeBefore: " until its first token", scopeAfter: " from its first token on"}

// what describes the cause with what is known about it.
func (a *account) what(c cause) string {
	switch c {
	case causeQueue:
		return "waiting for admission" + whyWaited[a.r.WaitReason]
	case causePrepare:
		if a.r.Render > a.r.Tokenize {
			return "rendering its chat template"
		}
	case causeOwnPrefill:
		return fmt.Sprintf("computing its own prompt (%s, %s of them from the cache)", tokens(a.r.PromptTokens), thousands(a.r.CachedTokens))
	case causeOwnDecode:
		return fmt.Sprintf("computing its own answer (%s)", tokens(a.r.CompletionTokens))
	case causeOthersPrefill:
		return a.others("prompt", func(n *NeighbourView) int { return n.PrefillTokens })
	case causeOthersDecode:
		return a.others("answer", func(n *NeighbourView) int { return n.DecodeTokens })
	case causeHeldBack:
		return "waiting while the engine's steps went to others" + a.mostTo()
	case causePages:
		return "waiting for pages of keys and values, which others held" + a.mostTo()
	case causePlaces:
		return "waiting for a place among the sequences that run" + a.mostTo()
	case causePrefix:
		return "waiting for another request to compute the beginning that both share" + a.mostTo()
	case causePreempted:
		return fmt.Sprintf("being preempted, %s: its pages were taken for others%s", times(a.r.Engine.Preempted), a.mostTo())
	case causeSibling:
		return "the replica " + a.r.ServedBy + ", which computed it because its first token came sooner there"
	case causeTaken:
		if a.busiest != "" {
			return "the engine's waits for processors, which others had: " + a.busiest
		}
	}
	return plain[c]
}

var plain = [causeCount]string{
	causeBody:        "receiving its body",
	causePrepare:     "rendering and tokenizing its prompt",
	causeReserve:     "asking the store of budgets",
	causeGap:         "the gaps between the engine's steps",
	causeGrammar:     "the grammar of its answer: compiling it, and finding which tokens it allows",
	causeGivenUp:     "steps that were given up for more urgent requests",
	causeReader:      "waiting for its own client to read",
	causeHandover:    "passing it between the gateway and the engine",
	causeToEngine:    "the way to the engine and back, for its prompt",
	causeFrozen:      "the engine, whose process was frozen: it had work, free processors, and did not run",
	causeTaken:       "the engine's waits for processors, which other programs had",
	causeStolen:      "the engine's waits for processors, which the hypervisor gave to other machines",
	causeThrottled:   "the engine's waits while its CPU limit was used up",
	causePaging:      "the engine's waits for memory that a disk had to bring",
	causeSibling:     "another replica, which computed it",
	causeUnexplained: "the engine, which gave no details",
}

// waitPaused is the reason of a request that waited for an operator.
const waitPaused = "paused"

var whyWaited = map[string]string{
	"window":    ", held for a moment so that others could join its batch",
	"prefill":   ": the engine had a step's worth of prompts to compute",
	"order":     ": others came first",
	"share":     ": its tenant had used more than its share",
	"class_cap": ": its class held as much as it may",
	"sequences": ": every running place was taken",
	"memory":    ": there was not enough free memory for its keys and values",
	waitPaused:  ": the operator had paused its class",
	"engine":    ": there was no engine to run it",
}

// others names the request that added most to the steps by one kind of work.
func (a *account) others(kind string, work func(*NeighbourView) int) string {
	var most *NeighbourView
	all, count := 0, 0
	for i := range a.v.Neighbours {
		n := &a.v.Neighbours[i]
		if work(n) == 0 {
			continue
		}
		all, count = all+work(n), count+1
		if most == nil || work(n) > work(most) {
			most = n
		}
	}
	switch {
	case most == nil:
		return "other requests' " + kind + "s" + a.slowest()
	case count == 1 || work(most)*5 >= all*4:
		return fmt.Sprintf("another request's %s: %s (%s, %s)%s", kind, name(most), tokens(work(most)), steps(most.Steps), a.classOf(most))
	}
	return fmt.Sprintf("the %ss of %d other requests, most of it to %s (%s, %s)%s", kind, count+a.v.NeighboursMore, name(most), tokens(work(most)), steps(most.Steps), a.classOf(most))
}

// slowest names the culprit, if it is known.
func (a *account) slowest() string {
	if a.culprit.id == "" {
		return ""
	}
	return ", in the slowest step " + name(&NeighbourView{ID: a.culprit.id, ClientID: a.culprit.clientID, Tenant: a.culprit.tenant})
}

// mostTo names the request that took most of the engine meanwhile.
func (a *account) mostTo() string {
	if len(a.v.Neighbours) == 0 {
		return ""
	}
	n := &a.v.Neighbours[0]
	return fmt.Sprintf(", most to %s (%s, %s)%s", name(n), tokens(n.PrefillTokens+n.DecodeTokens), steps(n.Steps), a.classOf(n))
}

func (a *account) classOf(n *NeighbourView) string {
	switch n.Class {
	case "":
		return ""
	case a.r.Class:
		return " of its own class, " + n.Class
	}
	return " of the class " + n.Class
}

// name is a request by the names that people search for.
func name(n *NeighbourView) string {
	s := n.ID
	if n.Tenant != "" {
		s = n.Tenant + "'s " + s
	}
	if n.ClientID != "" {
		s += " (" + strconv.Quote(n.ClientID) + ")"
	}
	return s
}

// refused says why a request was refused.
func (a *account) refused() string {
	r := a.r
	if r.Outcome == telemetry.Revoked && r.WaitReason != waitPaused {
		return a.revoked()
	}
	s := fmt.Sprintf("It was refused after %s", short(a.life.wall()))
	if waited := a.causes[causeQueue]; waited > time.Millisecond && r.Prepared != 0 {
		s += fmt.Sprintf(", %s of them waiting", short(waited))
	}
	if r.WaitReason == waitPaused {
		return s + ": its class was paused by the operator. " + queueAdvice(waitPaused, r.Class)
	}
	return s + ": " + refusals[refusalOf(r)]
}

// revoked says why a request was refused that had been admitted.
func (a *account) revoked() string {
	r, predicted := a.r, "in time"
	if r.WaitPredicted > 0 {
		predicted = "after " + short(time.Duration(r.WaitPredicted))
	}
	return fmt.Sprintf("It was admitted, and refused after %s because the engine became slower: its first token was predicted %s, then later than its goal of %s. %s",
		short(a.life.wall()), predicted, short(r.Promised), refusals["revoked"])
}

func refusalOf(r *telemetry.Record) string {
	if _, ok := refusals[r.Refused]; ok {
		return r.Refused
	}
	return r.Outcome.String()
}

// refusals are keyed by admission's reason or, if there is none, by the outcome.
var refusals = map[string]string{
	"budget_requests":      "its tenant's budget of requests a minute is used up. Raise limits.requests_per_minute of the tenant, or have it send less; the answer said when to come back.",
	"budget_input_tokens":  "its tenant's budget of prompt tokens a minute is used up. Raise limits.input_tokens_per_minute of the tenant, or have it send less; the answer said when to come back.",
	"budget_output_tokens": "its tenant's budget of answer tokens a minute is used up. Raise limits.output_tokens_per_minute of the tenant, or have it ask for shorter answers; the answer said when to come back.",
	"budget_concurrency":   "its tenant has as many requests running as it may. Raise limits.concurrency of the tenant, or have it send fewer at once.",
	"budget_day":           "its tenant's tokens of the day are used up. Raise limits.tokens_per_day of the tenant; else it must wait for the next day.",
	"budget_tokens":        "its tokens of the minute, of prompt and answer together, are used up. Raise limits.tokens_per_minute, or have clients send less at once.",
	"budget_hour":          "its tokens of the hour are used up. Raise limits.tokens_per_hour; else it must wait for the next hour.",
	"budget_month":         "its tokens of the month are used up. Raise limits.tokens_per_month; else it must wait for the next month.",
	"budget_cost_day":      "its money of the day is used up. Raise limits.cost_per_day; else it must wait for the next day.",
	"budget_cost_month":    "its money of the month is used up. Raise limits.cost_per_month; else it must wait for the next month.",
	"budget_store":         "the shared store of budgets does not answer, and budget.on_failure says refuse. Look at the store; forebay_budget_degraded is 1 meanwhile.",
	"queue_full":           "no place to wait was free. Raise admission.waiting_requests_max or the class's own, or add a replica: what waits so long is late anyway.",
	"timed_out":            "it had waited as long as its class allows. There is more work than the engine can do: add a replica, or raise the class's wait_limit if its clients are patient.",
	"late":                 "it, or another one that counts more, would have missed its goal. There is more work than can be done in time: add a replica, lengthen the class's first_token_goal, or set late to demote.",
	"revoked":              "Look for what slowed the engine: another process on its processors, or their clock; /debug/steps has the long steps, and forebay_engine_step_ratio_high rises meanwhile.",
	"past_deadline":        "its client's own deadline could not be met. Give it more time in x-forebay-deadline-ms, or add a replica.",
	"overloaded":           "there was far too much work, and it was shed. Add a replica, or lower what the least urgent class may send.",
	"retry_budget":         "its tenant retries more than it tries. Have that client wait as Retry-After says.",
	"class_closed":         "an operator has drained its class. Open it again on /debug/queue or with forebay queue.",
	"rate_limited":         "a budget of its tenant is used up. The tenant's limits say how much it has.",
	"limiter_unavailable":  "the shared store of budgets does not answer. Look at the store.",
	"issuer_unavailable":   "the keys of its token's issuer could not be fetched. Look at identity.issuers and at the log.",
	"queue_timeout":        "it had waited as long as allowed. There is more work than the engine can do: add a replica.",
}

func phrase(p phase) string {
	return [phaseCount]string{"reading its body", "being identified", "preparing", "compiling its grammar", "rendering", "tokenizing", "the budget", "the queue", "dispatch", "the engine's queue", "prefill", "decode", "its last writes"}[p]
}

// short is a duration with two or three digits.
func short(d time.Duration) string {
	switch {
	case d >= 100*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 0, 64) + " s"
	case d >= time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d >= 10*time.Millisecond:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 100*time.Microsecond:
		return strconv.FormatInt(d.Microseconds(), 10) + " µs"
	}
	return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 1, 64) + " ms"
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}

func tokens(n int) string { return counted(n, "token") }
func steps(n int) string  { return counted(n, "step") }

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return thousands(n) + " times"
}

// thousands writes 7912 as 7,912.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
