package gateway

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file reads options that other servers have, under their names.

// optionFields are those of both routes, and optionChatFields those of chats.
var (
	optionFields = []string{"min_tokens", "stop_token_ids", "bad_words", "allowed_token_ids", "include_stop_str_in_output", "typical_p",
		"xtc_probability", "xtc_threshold", "repeat_penalty", "n_predict", "max_output_tokens", "top_n_sigma", "mirostat", "mirostat_tau", "mirostat_eta",
		"repeat_last_n", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "prompt_logprobs"}
	optionChatFields = []string{"continue_final_message", "add_generation_prompt"}
)

// moreOptions reads the options; l bounds their lists.
func (f *fields) moreOptions(o *wire.Options, l *LimitsConfig) {
	o.MinTokens = f.whole("min_tokens", 0)
	o.StopTokens = f.tokenList("stop_token_ids", l.LogitBiasMax)
	o.AllowedTokens = f.tokenList("allowed_token_ids", l.LogitBiasMax)
	o.BadWords = f.words("bad_words", l.LogitBiasMax)
	o.KeepStop = f.flag("include_stop_str_in_output")
	o.TypicalP = f.number("typical_p", 1)
	f.notZero("typical_p", o.TypicalP, "1 does nothing")
	if o.TopNSigma = f.number("top_n_sigma", 0); o.TopNSigma == -1 {
		o.TopNSigma = 0
	}
	if o.XTCProbability = f.number("xtc_probability", 0); o.XTCProbability != 0 {
		o.XTCThreshold = f.number("xtc_threshold", 0.1)
	}
	if _, given := f.given("repeat_penalty"); given {
		same := f.number("repeat_penalty", 1)
		if _, both := f.given("repetition_penalty"); both && same != o.RepetitionPenalty {
			f.fail("repeat_penalty", "repeat_penalty and repetition_penalty are the same option; give one of them")
		}
		f.notZero("repeat_penalty", same, "1 does nothing")
		o.RepetitionPenalty = same
	}
}

// repetition reads how far back penalties look, and the penalty of repeated sequences.
func (f *fields) repetition(o *wire.Options) {
	switch o.RepeatLast = f.window("repeat_last_n"); o.RepeatLast {
	case 0: // nothing is looked at
		o.RepetitionPenalty, o.PresencePenalty, o.FrequencyPenalty = 1, 0, 0
	case -1:
		o.RepeatLast = 0
	}
	d := wire.DRY{
		Multiplier: f.number("dry_multiplier", 0), Base: f.number("dry_base", 1.75), Length: f.whole("dry_allowed_length", 2),
		Last: f.window("dry_penalty_last_n"), Breakers: f.words("dry_sequence_breakers", wire.BreakersMax),
	}
	if _, given := f.given("dry_sequence_breakers"); !given {
		d.Breakers = []string{"\n", ":", `"`, "*"}
	}
	f.notZero("dry_base", d.Base, "1 does not grow")
	switch {
	case d.Multiplier == 0 || d.Last == 0:
		return
	case d.Last == -1:
		d.Last = 0
	}
	o.DRY = d
}

// window reads how many of the last tokens count: -1, or absent, for all.
func (f *fields) window(name string) int {
	n := f.whole(name, -1)
	if n < -1 {
		f.fail(name, "%s must be -1 for all tokens, 0 for none, or a number of tokens, not %d", name, n)
	}
	return n
}

// mirostat reads the second version alone: the first needs a rank of all tokens.
func (f *fields) mirostat(o *wire.Options) {
	version, tau, eta := f.whole("mirostat", 0), f.number("mirostat_tau", 5), f.number("mirostat_eta", 0.1)
	f.notZero("mirostat_tau", tau, "mirostat 0 turns it off")
	if version != 0 && version != 2 {
		f.fail("mirostat", "mirostat must be 2, or 0 for off, not %d", version)
	}
	if version == 2 {
		o.MirostatTau, o.MirostatEta = tau, eta
	}
}

// scorePrompt reads prompt_logprobs.
func (c *call) scorePrompt(f *fields) {
	const name = "prompt_logprobs"
	raw, given := f.given(name)
	if !given || string(raw) == "false" {
		return
	}
	c.scored, c.options.PromptTop = true, f.whole(name, 0)
	switch {
	case c.stream:
		f.fail(name, "prompt_logprobs and stream cannot be combined; leave one of them out")
	case c.options.PromptLogprobs:
		f.fail(name, "prompt_logprobs and echo with logprobs cannot be combined: they are the same numbers")
	}
	c.options.PromptLogprobs = true
}

// otherLimits reads the names that other servers have for max_tokens. At -1 they
// bound nothing.
func (f *fields) otherLimits(o *wire.Options) {
	before := ""
	for _, name := range [...]string{"max_tokens", "max_completion_tokens"} {
		if _, given := f.given(name); given {
			before = name
		}
	}
	for _, name := range [...]string{"n_predict", "max_output_tokens"} {
		raw, given := f.given(name)
		if !given {
			continue
		}
		n := 0
		if string(raw) != "-1" {
			n = f.answerTokens(name, 0)
		}
		if before != "" && n != o.MaxTokens {
			f.fail(name, "%s and %s are the same option; give one of them", name, before)
		}
		o.MaxTokens, before = n, name
	}
}

// tokenList reads an array of token ids, nil where there is none.
func (f *fields) tokenList(name string, most int) (ids []int32) {
	raw, ok := f.given(name)
	if !ok {
		return nil
	}
	if !isArray(raw) {
		f.fail(name, "%s must be an array of token ids", name)
	}
	for i, item := range elements(raw) {
		id, err := strconv.ParseInt(string(item), 10, 32)
		switch {
		case err != nil || id < 0:
			f.fail(name, "%s holds %s at index %d, which is not a token id", name, brief(item), i)
			return nil
		case i == most:
			f.fail(name, "%s may hold at most %d token ids", name, most)
			return nil
		}
		ids = append(ids, int32(id))
	}
	return ids
}

// words reads an array of texts.
func (f *fields) words(name string, most int) (all []string) {
	raw, ok := f.given(name)
	if ok && !isArray(raw) {
		f.fail(name, "%s must be an array of strings", name)
	}
	for i, item := range elements(raw) {
		switch {
		case !isString(item):
			f.fail(name, "%s holds %s at index %d, which is not a string", name, brief(item), i)
			return nil
		case i == min(most, wire.BadWordsMax):
			f.fail(name, "%s may hold at most %d strings", name, i)
			return nil
		}
		all = append(all, unquote(item))
	}
	return all
}

// ending reads how the prompt ends: with the turn of the assistant begun, without,
// or within the last message, which the answer goes on with.
func (f *fields) ending(r *wire.Request) {
	raw, given := f.given("add_generation_prompt")
	begins := f.flag("add_generation_prompt")
	r.Continue = f.flag("continue_final_message")
	switch {
	case r.Continue && begins:
		f.fail("add_generation_prompt", "add_generation_prompt and continue_final_message cannot both be true: the answer begins a turn or goes on with one")
	case r.Continue && lastRole(r.Messages) != "assistant":
		f.fail("continue_final_message", "continue_final_message needs a last message of the role assistant")
	case given && string(raw) == "false" && !r.Continue:
		options := []byte(`{"add_generation_prompt":false`)
		for key, value := range members(r.TemplateOptions) {
			options = append(append(appendString(append(options, ','), string(key)), ':'), value...)
		}
		r.TemplateOptions = append(options, '}')
	}
}

// lastRole is the role of the last message.
func lastRole(messages json.RawMessage) (role string) {
	for _, one := range elements(messages) {
		role = ""
		if raw := member(one, "role"); isString(raw) {
			role = unquote(raw)
		}
	}
	return role
}

// checkContinue refuses what an answer that goes on with a message cannot be.
func (c *call) checkContinue(f *fields) {
	if c.options.Grammar != nil && slices.ContainsFunc(c.prompts, func(r wire.Request) bool { return r.Continue }) {
		f.fail("continue_final_message", "continue_final_message and %s cannot be combined: the form holds from the first byte of an answer", c.options.Grammar.Param)
	}
}
