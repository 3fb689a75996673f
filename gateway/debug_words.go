package gateway

import "github.com/forebay-io/forebay/internal/wire"

// meanings say in a few words what the names on a request's page mean: of its
// phases, and of what its time in the engine went to. docs/operations.md tells
// what to do about each.
var meanings = map[string]string{
	"read":         "reading and decoding the body",
	"identify":     "whose it is, and of which class",
	"prepare":      "to the engine and back, for the prompt",
	"render":       "the chat template",
	"tokenize":     "the tokenizer",
	"reserve":      "the tenant's budgets",
	"queue":        "in line, before admission",
	"dispatch":     "handing it to the engine",
	"engine_queue": "in the engine, before its first step",
	"prefill":      "computing the prompt, to the first token",
	"decode":       "from the first token to the last",
	"emit":         "from the last token to the end of the answer",
	"before":       "all that came before",

	"handover":       "on its way to the engine",
	"own":            "its own computing",
	"others_prefill": "others' prompts, computed in the same steps",
	"others_decode":  "others' next tokens, computed in the same steps",
	"gap":            "between two steps: composing, reporting",
	"given_up":       "steps that were given up for somebody more urgent",
	"pages":          "no free pages for keys and values",
	"places":         "no place among those that run",
	"prefix":         "another request was computing the prefix that both have",
	"held_back":      "the steps went to others: more urgent, of the other lane, or due earlier",
	"preempted":      "its pages were taken, and are computed again",
	"paused":         "its client was slow to read",
	"parked":         "its text was not fetched in time",
	"unexplained":    "nothing is known of it",
}

// meaningOf is what name means, or "".
func meaningOf(name string) string { return meanings[name] }

// partKinds are the parts that have a colour of their own.
var partKinds = map[string]string{
	"queue": "queue", "engine_queue": "queue", "queued": "queue", "prefill": "prefill", "decode": "decode", "generating": "decode", "emit": "emit",
}

// kindOf is the colour of a part.
func kindOf(name string) string {
	if kind := partKinds[name]; kind != "" {
		return kind
	}
	return "other"
}

// kernelKind is the colour of a class of kernels.
func kernelKind(class string) string {
	for k := range wire.KernelClassCount {
		if k.String() == class {
			return "k-" + class
		}
	}
	return "p-other"
}

// slowReasons are the reasons to keep a request that tell that it was slow.
var slowReasons = []string{"slow_first_token", "slow_token", "slow_queue", "hung", "unusual"}
