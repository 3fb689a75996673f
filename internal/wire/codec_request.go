package wire

import (
	"encoding/binary"
	"time"
)

func duration(ns int64) time.Duration { return time.Duration(ns) }

func appendTexts(b []byte, all []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, s := range all {
		b = appendText(b, s)
	}
	return b
}

// texts reads up to most texts: n empty ones would take many times the memory of their frame.
func (d *decoder) texts(most int, what string) (all []string) {
	n := d.count(1)
	if n > most {
		d.fail("%d %s, over the limit of %d", n, what, most)
	} else if n > 0 {
		all = make([]string, n)
		for i := range all {
			all[i] = d.text()
		}
	}
	return all
}

func appendOptions(b []byte, o *Options) []byte {
	b = appendInt(appendInt(appendInt(b, o.MaxTokens), o.N), o.TopK)
	for _, x := range [...]float32{o.Temperature, o.TopP, o.MinP, o.RepetitionPenalty, o.PresencePenalty, o.FrequencyPenalty, o.TypicalP, o.XTCProbability, o.XTCThreshold, o.TopNSigma, o.MirostatTau, o.MirostatEta, o.DRY.Multiplier, o.DRY.Base} {
		b = appendFloat(b, x)
	}
	b = appendInt(appendInt(appendInt(b, o.RepeatLast), o.DRY.Length), o.DRY.Last)
	b = binary.LittleEndian.AppendUint64(b, o.Seed)
	b = binary.AppendUvarint(b, uint64(len(o.LogitBias)))
	for _, l := range o.LogitBias {
		b = appendFloat(appendInt(b, int(l.Token)), l.Bias)
	}
	b = appendList32(appendList32(appendTexts(b, o.Stop), o.AllowedTokens), o.StopTokens)
	b = appendTexts(appendTexts(b, o.BadWords), o.DRY.Breakers)
	b = appendInt(b, o.MinTokens)
	for _, x := range [...]bool{o.IgnoreEOS, o.Echo, o.Logprobs, o.PromptLogprobs, o.Embed, o.KeepStop} {
		b = appendBool(b, x)
	}
	b = appendBool(appendBool(appendInt(appendInt(b, o.TopLogprobs), o.PromptTop), o.Split), o.NoCalls)
	return appendGrammar(appendInt(appendInt(appendText(b, o.Tools), o.CallsMax), o.ReasoningMax), o.Grammar)
}

func (d *decoder) options() (o Options) {
	o.MaxTokens, o.N, o.TopK = d.int(), d.int(), d.int()
	for _, x := range [...]*float32{&o.Temperature, &o.TopP, &o.MinP, &o.RepetitionPenalty, &o.PresencePenalty, &o.FrequencyPenalty, &o.TypicalP, &o.XTCProbability, &o.XTCThreshold, &o.TopNSigma, &o.MirostatTau, &o.MirostatEta, &o.DRY.Multiplier, &o.DRY.Base} {
		*x = d.float()
	}
	o.RepeatLast, o.DRY.Length, o.DRY.Last = d.int(), d.int(), d.int()
	o.Seed = d.uint64()
	if n := d.count(5); n > 0 {
		o.LogitBias = make([]LogitBias, n)
		for i := range o.LogitBias {
			o.LogitBias[i] = LogitBias{Token: d.int32(), Bias: d.float()}
		}
	}
	o.Stop = d.texts(StopsMax, "stop texts")
	o.AllowedTokens, o.StopTokens = d.list32(), d.list32()
	o.BadWords, o.DRY.Breakers = d.texts(BadWordsMax, "bad words"), d.texts(BreakersMax, "breakers")
	o.MinTokens = d.int()
	for _, x := range [...]*bool{&o.IgnoreEOS, &o.Echo, &o.Logprobs, &o.PromptLogprobs, &o.Embed, &o.KeepStop} {
		*x = d.bool()
	}
	o.TopLogprobs, o.PromptTop, o.Split, o.NoCalls = d.int(), d.int(), d.bool(), d.bool()
	o.Tools, o.CallsMax, o.ReasoningMax, o.Grammar = d.bytes(), d.int(), d.int(), d.grammar()
	if o.N > choicesMax {
		d.fail("%d choices, over the limit of %d", o.N, choicesMax)
	}
	return o
}

func appendRequest(b []byte, r *Request) []byte {
	b = appendText(b, r.ID)
	b = appendText(appendText(appendText(b, r.Messages), r.Tools), r.TemplateOptions)
	b = appendBool(appendText(append(b, byte(r.Think)), r.Effort), r.NoCalls)
	for _, text := range [...]*string{r.Text, r.Document} {
		if b = appendBool(b, text != nil); text != nil {
			b = appendText(b, *text)
		}
	}
	return appendGrammar(appendBool(appendText(appendList32(b, r.Tokens), r.Salt), r.Continue), r.Grammar)
}

func (d *decoder) request() *Request {
	r := &Request{ID: d.text(), Messages: d.bytes(), Tools: d.bytes(), TemplateOptions: d.bytes(), Think: Think(d.byte()), Effort: d.text(), NoCalls: d.bool()}
	if r.Think >= thinks {
		d.fail("unknown wish %d about reasoning", uint8(r.Think))
	}
	for _, to := range [...]**string{&r.Text, &r.Document} {
		if d.bool() {
			text := d.text()
			*to = &text
		}
	}
	r.Tokens, r.Salt, r.Continue, r.Grammar = d.list32(), d.text(), d.bool(), d.grammar()
	return r
}

func appendPrompt(b []byte, p *Prompt) []byte {
	b = appendText(appendList32(b, p.Tokens), p.Text)
	b = appendInt(appendInt(b, p.Room), p.CachedTokens)
	b = binary.AppendUvarint(b, uint64(len(p.BlockHashes)))
	for _, h := range p.BlockHashes {
		b = binary.LittleEndian.AppendUint64(b, h)
	}
	b = appendTexts(b, p.Unenforced)
	return appendDuration(appendDuration(appendDuration(appendInt(b, p.Calls), p.Render), p.Tokenize), p.Compile)
}

func (d *decoder) prompt() *Prompt {
	p := &Prompt{Tokens: d.list32(), Text: d.text(), Room: d.int(), CachedTokens: d.int()}
	if n := d.count(8); n > 0 {
		p.BlockHashes = make([]uint64, n)
		for i := range p.BlockHashes {
			p.BlockHashes[i] = d.uint64()
		}
	}
	p.Unenforced = d.texts(UnenforcedMax, "words without effect")
	p.Calls, p.Render, p.Tokenize, p.Compile = d.int(), d.duration(), d.duration(), d.duration()
	return p
}

// dispatch is a generation as it crosses the wire: the id of its sequence on this
// connection, how many events its reader has room for, and the generation.
type dispatch struct {
	Sequence   uint64
	Window     int
	Generation Generation
}

// appendDispatch leaves out the id: enqueue chooses it.
func appendDispatch(b []byte, window int, g *Generation) []byte {
	b = appendInt(b, window)
	b = binary.AppendUvarint(appendText(appendText(appendText(b, g.ID), g.Salt), g.Class), g.Serial)
	b = binary.AppendVarint(appendInt(b, g.Level), g.Key)
	b = binary.AppendVarint(appendBool(b, g.Long), int64(g.TokenGoal))
	b = appendInt(appendDuration(appendBool(b, g.Pin.Asked), g.Pin.For), g.Pin.TokensMax)
	b = append(append(append(b, g.Trace.TraceID[:]...), g.Trace.SpanID[:]...), g.Trace.Flags)
	b = appendText(b, g.Trace.State)
	b = appendOptions(b, &g.Options)
	return appendPrompt(b, g.Prompt)
}

func (d *decoder) dispatch() (m dispatch) {
	g := &m.Generation
	m.Sequence, m.Window = d.uint(), d.int()
	g.ID, g.Salt, g.Class, g.Serial = d.text(), d.text(), d.text(), d.uint()
	g.Level, g.Key = d.int(), d.int64()
	g.Long, g.TokenGoal = d.bool(), duration(d.int64())
	if g.Level < 0 || g.TokenGoal < 0 {
		d.fail("level %d or token goal %v is negative", g.Level, g.TokenGoal)
	}
	g.Pin = Pin{Asked: d.bool(), For: d.duration(), TokensMax: d.int()}
	if g.Pin.TokensMax < 0 {
		d.fail("a pin of at most %d tokens", g.Pin.TokensMax)
	}
	copy(g.Trace.TraceID[:], d.take(16))
	copy(g.Trace.SpanID[:], d.take(8))
	g.Trace.Flags, g.Trace.State = d.byte(), d.text()
	g.Options = d.options()
	g.Prompt = d.prompt()
	return m
}

// promptReply answers a prepare: a prompt or an error.
type promptReply struct {
	Prepare uint64
	Prompt  *Prompt
	Err     *Error
}

func appendPromptReply(b []byte, r *promptReply) []byte {
	start := len(b)
	b = beginFrame(b, framePromptReply)
	b = appendError(binary.AppendUvarint(b, r.Prepare), r.Err)
	if r.Err == nil {
		b = appendPrompt(b, r.Prompt)
	}
	return endFrame(b, start)
}

func (d *decoder) promptReply() (r promptReply) {
	r.Prepare, r.Err = d.uint(), d.error()
	if r.Err == nil {
		r.Prompt = d.prompt()
	}
	return r
}
