// Package picker is the endpoint picker of an Envoy: by the external processing
// protocol it is shown a request, and says which replica serves it, as the Gateway API
// inference extension lays down.
//
// Goal: a proxy brings a request to the replica where its first token comes first, by
// the rule and the knowledge of package siblings, and does so without a wait that
// anybody notices.
//
// What is known of a prompt. Replicas tell which blocks of tokens they hold, and to
// render and tokenize a long prompt takes milliseconds. So a trail remembers which
// blocks the beginning of a text had: the next turn of a conversation is picked by it
// at once, and read behind. A prompt that begins with something new is read before the
// answer, if that takes no longer than ReadLimit; else, and where all readers are busy,
// it is picked by the replicas' load alone.
//
// Non-goals: to refuse what a replica refuses (keys, budgets, malformed bodies): such a
// request is picked by load, and the replica says why not. To change a body.
//
// Ownership: a Service's methods may be called from any goroutine. Close waits for
// the prompts that are being read.
package picker
