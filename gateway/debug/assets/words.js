// What the names on a request's page mean: its phases, and where its time in the
// engine went. docs/operations.md says what to do about each.
export const meanings = {
  read: "read and decode the body",
  identify: "find the tenant and the class",
  prepare: "to the engine and back, for the prompt",
  compile: "the answer's grammar",
  render: "the chat template",
  tokenize: "the tokenizer",
  reserve: "the tenant's budgets",
  queue: "in the queue, before admission",
  dispatch: "hand it to the engine",
  engine_queue: "in the engine, before its first step",
  prefill: "compute the prompt, up to the first token",
  decode: "from the first token to the last",
  emit: "from the last token to the end of the answer",
  before: "everything before",

  handover: "on its way to the engine",
  own: "its own computing",
  others_prefill: "prompts of others, computed in the same steps",
  others_decode: "decode tokens of others, computed in the same steps",
  gap: "between two steps: composing, reporting",
  given_up: "steps that were abandoned for a more urgent request",
  mask: "finding which tokens its grammar allows",
  pages: "no free pages for keys and values",
  places: "too many running sequences",
  prefix: "another request was computing the same prefix",
  held_back: "the steps went to others: more urgent, in the other lane, or due earlier",
  preempted: "its pages were taken and are computed again",
  paused: "its client was slow to read",
  parked: "the gateway was slow to fetch its text",
  frozen: "the engine's process was stopped",
  taken: "other programs had the processors",
  stolen: "the hypervisor gave the processors to other machines",
  throttled: "the engine's CPU limit was used up",
  paging: "the engine waited for memory from a disk",
  sibling: "another replica computed it",
  unexplained: "unknown",
};

// partKinds are the phases with a colour of their own.
export const partKinds = {queue: "queue", engine_queue: "queue", queued: "queue", prefill: "prefill", decode: "decode", generating: "decode", emit: "emit"};
