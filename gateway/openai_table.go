package gateway

// field is a member of a request that this server reads, as docs/api.md lists it.
type field struct {
	name       string
	chat, text bool // the routes that read it
	value      string
	effect     string
}

// requestFields are the members of requests to /v1/chat/completions and
// /v1/completions. What is not here and not among unsupportedFields is ignored.
var requestFields = []field{
	{"model", true, true, "text", "the model, as /v1/models names it; required"},
	{"messages", true, false, "array", "the conversation; required"},
	{"prompt", false, true, "text, texts, token ids, or arrays of them", "the prompts; required"},
	{"stream", true, true, "true, false", "the answer comes in events"},
	{"stream_options", true, true, "object", "`include_usage`: the counts come in a last event"},
	{"user", true, true, "text", "the client's own user, for limits and records"},
	{"service_tier", true, true, "auto, default, flex, priority", "the class of the request, as the policy maps it"},

	{"max_tokens", true, true, "1 and more", "most tokens of each choice; without it a chat gets what its context leaves, a completion 16"},
	{"max_completion_tokens", true, false, "1 and more", "the same; it counts where both are there"},
	{"n_predict", true, true, "1 and more, or -1", "the same, as llama.cpp's server names it; -1 is no limit"},
	{"max_output_tokens", true, true, "1 and more, or -1", "the same, as other APIs name it"},
	{"min_tokens", true, true, "0 and more", "least tokens of each choice: no end token, stop token or stop text ends it before"},
	{"stop", true, true, "text, or up to 4 texts", "the answer ends before the first of them"},
	{"stop_token_ids", true, true, "token ids", "the answer ends at the first of them"},
	{"include_stop_str_in_output", true, true, "true, false", "the stop text or stop token stays in the answer"},
	{"ignore_eos", true, true, "true, false", "the model's own end tokens do not end the answer"},

	{"temperature", true, true, "0 to 2", "0 takes the likeliest token; 1 by default"},
	{"top_p", true, true, "above 0, up to 1", "the likeliest tokens that reach this probability"},
	{"top_k", true, true, "0 and more, or -1", "that many of the likeliest tokens; 0 and -1 are all"},
	{"min_p", true, true, "0 to 1", "tokens of at least this share of the likeliest"},
	{"typical_p", true, true, "above 0, up to 1", "the most typical tokens that reach this probability; before top_p"},
	{"top_n_sigma", true, true, "0 to 100, or -1", "tokens whose logit is at most that many standard deviations below the largest; before temperature; 0 and -1 are all"},
	{"mirostat", true, true, "0, 2", "2 keeps the surprise of tokens near mirostat_tau, after all other filters but xtc; 1 is refused"},
	{"mirostat_tau", true, true, "above 0, up to 100", "the surprise, in bits; 5 by default"},
	{"mirostat_eta", true, true, "0 to 1", "how fast its bound follows; 0.1 by default"},
	{"xtc_probability", true, true, "0 to 1", "how often a token is drawn without the top choices, as llama.cpp's server does: of the tokens at or over xtc_threshold the least likely alone stays; 0 by default"},
	{"xtc_threshold", true, true, "0 to 1", "the probability of a top choice, among what the other filters keep; 0.1 by default, and over 0.5 there are none"},
	{"seed", true, true, "whole number", "the same seed gives the same answer"},
	{"repetition_penalty", true, true, "0.01 to 100", "divides the logits of tokens that the prompt or the answer has; 1 by default"},
	{"repeat_penalty", true, true, "0.01 to 100", "the same, as llama.cpp's server and Ollama name it"},
	{"presence_penalty", true, true, "-2 to 2", "is taken from the logits of tokens that the answer has"},
	{"frequency_penalty", true, true, "-2 to 2", "the same, once for each time"},
	{"repeat_last_n", true, true, "-1 and more", "the penalties above look at that many of the last tokens; 0 turns them off, and -1 is all, as by default"},
	{"dry_multiplier", true, true, "0 to 100", "above 0, a token that would make a repeated sequence longer loses this, times dry_base for each token over dry_allowed_length"},
	{"dry_base", true, true, "1 to 100", "1.75 by default"},
	{"dry_allowed_length", true, true, "0 and more", "the shortest sequence that counts; 2 by default"},
	{"dry_penalty_last_n", true, true, "-1 and more", "it looks at that many of the last tokens; 0 turns it off, and -1 is all, as by default"},
	{"dry_sequence_breakers", true, true, "up to 64 texts", "no sequence goes across one of them; a newline, a colon, a quote and an asterisk by default"},
	{"logit_bias", true, true, "object", "is added to the logits of token ids"},
	{"allowed_token_ids", true, true, "token ids", "only these tokens are sampled"},
	{"bad_words", true, true, "texts", "their tokens, with and without a space in front, are not sampled in a row"},
	{"n", true, true, "1 and more", "choices"},
	{"best_of", false, true, "the same as n", "any other value is refused"},
	{"logprobs", true, true, "true or false; for completions 0 to 5", "log-probabilities of the answer's tokens, before all of the above"},
	{"top_logprobs", true, false, "0 to 20", "how many of the likeliest tokens are listed"},
	{"prompt_logprobs", true, true, "0 to 20, or false", "the log-probability and rank of each token of the prompt, and of that many of the likeliest, in the form of vLLM; not in a stream"},
	{"echo", false, true, "true, false", "the answer begins with the prompt"},
	{"suffix", false, true, "empty", "any other value is refused"},

	{"response_format", true, true, "object", "[a form](#answers-in-a-form), as the next ones"},
	{"structured_outputs", true, true, "object", ""},
	{"guided_json", true, true, "schema", ""},
	{"guided_json_object", true, true, "true, false", ""},
	{"guided_regex", true, true, "regular expression", ""},
	{"guided_choice", true, true, "texts", ""},
	{"guided_grammar", true, true, "grammar", ""},
	{"json_schema", true, true, "schema", ""},
	{"format", true, true, "json, or schema", ""},
	{"regex", true, true, "regular expression", ""},
	{"grammar", true, true, "grammar", ""},
	{"ebnf", true, true, "GBNF", ""},

	{"tools", true, false, "array", "[functions](tools.md) that the model may call"},
	{"tool_choice", true, false, "auto, none, required, or an object that names a function or those that are allowed", "[whether](tools.md) it may, or must"},
	{"parallel_tool_calls", true, false, "true, false", "several calls in one answer"},
	{"reasoning_effort", true, false, "none, minimal, low, medium, high", "[how much](tools.md) the model reasons before it answers"},
	{"reasoning", true, false, "object", "the same, as `effort`"},
	{"enable_thinking", true, false, "true, false", "whether the model reasons"},
	{"think", true, false, "true, false, or an effort", "the same, as Ollama names it"},
	{"thinking", true, false, "object", "the same, as Anthropic names it"},
	{"thinking_budget", true, false, "1 and more", "most tokens of reasoning"},
	{"thinking_token_budget", true, false, "1 and more", "the same, as vLLM names it"},
	{"include_reasoning", true, false, "true, false", "whether the answer has the reasoning"},
	{"chat_template_kwargs", true, false, "object", "options of the model's chat template"},
	{"add_generation_prompt", true, false, "true, false", "false ends the prompt without a turn of the assistant"},
	{"continue_final_message", true, false, "true, false", "the answer goes on with the last message, which is the assistant's"},
	{"modalities", true, false, `["text"]`, "any other value is refused"},
	{"functions", true, false, "", "refused: use tools"},
	{"function_call", true, false, "", "refused: use tool_choice"},
	{"audio", true, false, "", "refused"},
}

var knownChat, knownText = namesOf(func(f *field) bool { return f.chat }), namesOf(func(f *field) bool { return f.text })

// namesOf are the names of the fields that a route reads.
func namesOf(reads func(*field) bool) map[string]bool {
	names := map[string]bool{}
	for i := range requestFields {
		if reads(&requestFields[i]) {
			names[requestFields[i].name] = true
		}
	}
	return names
}
