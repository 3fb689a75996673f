package gateway

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/forebay-io/forebay/internal/chars"
	"github.com/forebay-io/forebay/internal/wire"
)

// answer is what all chunks of one reply have in common.
type answer struct {
	chat    bool
	id      string
	created int64
	model   string
	mark    string // system_fingerprint
	tier    string // service_tier, or ""
	usage   bool   // chunks carry "usage":null, and one carries the usage
	prefix  []byte // of a chunk, up to and with "choices":[
}

// head appends the members before "choices".
func (a *answer) head(b []byte, object string) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, a.id)
	b = append(b, `,"object":"`...)
	b = append(b, object...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, a.created, 10)
	b = append(b, `,"model":`...)
	b = appendString(b, a.model)
	b = append(b, `,"system_fingerprint":`...)
	b = appendString(b, a.mark)
	if a.tier != "" {
		b = append(b, `,"service_tier":`...)
		b = appendString(b, a.tier)
	}
	return append(b, `,"choices":[`...)
}

func (a *answer) chunkOpen(b []byte) []byte {
	if a.prefix == nil {
		object := "text_completion"
		if a.chat {
			object = "chat.completion.chunk"
		}
		a.prefix = a.head(append(make([]byte, 0, 256), "data: "...), object)
	}
	return append(b, a.prefix...)
}

func (a *answer) chunkClose(b []byte) []byte {
	if a.usage {
		b = append(b, `],"usage":null}`...)
	} else {
		b = append(b, "]}"...)
	}
	return append(b, "\n\n"...)
}

// roleChunk opens a chat choice. Its content is null where there may be none, as
// clients join contents that follow to "" or to null.
func (a *answer) roleChunk(b []byte, index int, none bool) []byte {
	b = append(a.chunkOpen(b), `{"index":`...)
	b = strconv.AppendInt(b, int64(index), 10)
	b = append(b, `,"delta":{"role":"assistant","content":`...)
	if none {
		b = append(b, "null"...)
	} else {
		b = append(b, `""`...)
	}
	b = append(b, `},"logprobs":null,"finish_reason":null}`...)
	return a.chunkClose(b)
}

// textChunk carries new text and its logprobs, nil for none.
func (a *answer) textChunk(b []byte, index int, text string, l *logprobList) []byte {
	b = a.chunkOpen(b)
	if a.chat {
		b = append(b, `{"index":`...)
		b = strconv.AppendInt(b, int64(index), 10)
		b = append(b, `,"delta":{"content":`...)
		b = append(appendString(b, text), '}')
	} else {
		b = append(b, `{"text":`...)
		b = appendString(b, text)
		b = append(b, `,"index":`...)
		b = strconv.AppendInt(b, int64(index), 10)
	}
	b = append(b, `,"logprobs":`...)
	b = l.append(b)
	b = append(b, `,"finish_reason":null}`...)
	return a.chunkClose(b)
}

// finishChunk closes a choice: an empty delta with the reason.
func (a *answer) finishChunk(b []byte, index int, f wire.Finish) []byte {
	b = a.chunkOpen(b)
	if a.chat {
		b = append(b, `{"index":`...)
		b = strconv.AppendInt(b, int64(index), 10)
		b = append(b, `,"delta":{}`...)
	} else {
		b = append(b, `{"text":"","index":`...)
		b = strconv.AppendInt(b, int64(index), 10)
	}
	b = append(b, `,"logprobs":null,"finish_reason":"`...)
	b = append(b, finishReason(f)...)
	b = append(b, `"}`...)
	return a.chunkClose(b)
}

// usageChunk is the one chunk with usage; its choices are empty.
func (a *answer) usageChunk(b []byte, u wire.Usage) []byte {
	b = append(a.chunkOpen(b), `],"usage":`...)
	b = appendUsage(b, u)
	return append(b, "}\n\n"...)
}

// whole appends the reply to a request that is not streamed.
func (a *answer) whole(b []byte, choices []choiceState, u wire.Usage) []byte {
	object := "text_completion"
	if a.chat {
		object = "chat.completion"
	}
	b = a.head(b, object)
	for i := range choices {
		c := &choices[i]
		if i > 0 {
			b = append(b, ',')
		}
		if a.chat {
			b = append(b, `{"index":`...)
			b = strconv.AppendInt(b, int64(i), 10)
			if c.relayed != nil {
				b = c.appendRelayed(append(b, `,"message":`...))
			} else {
				b = c.appendMessage(append(b, `,"message":`...))
			}
		} else {
			b = append(b, `{"text":`...)
			b = appendString(b, string(c.text))
			b = append(b, `,"index":`...)
			b = strconv.AppendInt(b, int64(i), 10)
		}
		b = append(b, `,"logprobs":`...)
		b = c.relayed.appendLogprobs(b, c.logprobs)
		b = append(b, `,"finish_reason":"`...)
		b = append(b, finishReason(c.finish)...)
		b = append(b, '"')
		if !a.chat {
			b = c.appendScored(b)
		}
		b = append(b, '}')
	}
	b = appendUsage(append(b, `],"usage":`...), u)
	if a.chat {
		b = choices[0].appendScored(b)
	}
	return append(b, '}')
}

func finishReason(f wire.Finish) string {
	switch f {
	case wire.FinishLength:
		return "length"
	case wire.FinishCalls:
		return "tool_calls"
	case wire.FinishFilter:
		return "content_filter"
	}
	return "stop"
}

func appendUsage(b []byte, u wire.Usage) []byte {
	b = append(b, `{"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Prompt), 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Completion), 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Prompt+u.Completion), 10)
	b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Cached), 10)
	if u.Pinned > 0 || u.PinRefused != wire.PinDone {
		b = strconv.AppendInt(append(b, `,"pinned_tokens":`...), int64(u.Pinned), 10)
	}
	if u.PinRefused != wire.PinDone {
		b = append(append(append(b, `,"pin_refused":"`...), u.PinRefused.String()...), '"')
	}
	b = append(b, `},"completion_tokens_details":{"reasoning_tokens":`...)
	return append(strconv.AppendInt(b, int64(u.Reasoning), 10), `}}`...)
}

// logprobList gathers log-probabilities in the shape of one route, already as
// JSON. A nil list is null.
type logprobList struct {
	chat    bool
	content []byte // chat: entries; legacy: tokens
	values  []byte // legacy only, as are the next two
	tops    []byte
	offsets []byte
	read    chars.Counter // the choice's text so far
}

func (l *logprobList) reset() {
	if l == nil {
		return
	}
	l.content, l.values, l.tops, l.offsets = l.content[:0], l.values[:0], l.tops[:0], l.offsets[:0]
}

func (l *logprobList) add(all []wire.TokenLogprob) {
	for i := range all {
		if l.chat {
			l.addChat(&all[i])
		} else {
			l.addText(&all[i])
		}
	}
}

func (l *logprobList) addChat(t *wire.TokenLogprob) {
	b := comma(l.content)
	b = appendTokenLogprob(append(b, '{'), t.Bytes, t.Logprob)
	b = append(b, `,"top_logprobs":[`...)
	for i := range t.Top {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendTokenLogprob(append(b, '{'), t.Top[i].Bytes, t.Top[i].Logprob), '}')
	}
	l.content = append(b, "]}"...)
}

func (l *logprobList) addText(t *wire.TokenLogprob) {
	l.content = appendTokenText(comma(l.content), t.ID, t.Bytes)
	l.values = appendLogprob(comma(l.values), t.Logprob)
	l.offsets = strconv.AppendInt(comma(l.offsets), int64(l.read.Add(t.Bytes)), 10)
	l.tops = appendTops(comma(l.tops), t)
}

// size is how many bytes the list holds.
func (l *logprobList) size() int {
	if l == nil {
		return 0
	}
	return len(l.content) + len(l.values) + len(l.tops) + len(l.offsets)
}

// append appends the whole list as the choice's logprobs member.
func (l *logprobList) append(b []byte) []byte {
	switch {
	case l == nil:
		return append(b, "null"...)
	case l.chat:
		b = append(b, `{"content":[`...)
		b = append(b, l.content...)
		return append(b, `],"refusal":null}`...)
	}
	b = append(b, `{"tokens":[`...)
	b = append(b, l.content...)
	b = append(b, `],"token_logprobs":[`...)
	b = append(b, l.values...)
	b = append(b, `],"top_logprobs":[`...)
	b = append(b, l.tops...)
	b = append(b, `],"text_offset":[`...)
	b = append(b, l.offsets...)
	return append(b, "]}"...)
}

func comma(b []byte) []byte {
	if len(b) > 0 {
		return append(b, ',')
	}
	return b
}

func appendTokenLogprob(b []byte, token []byte, logprob float32) []byte {
	b = append(b, `"token":`...)
	b = appendString(b, string(token))
	b = append(b, `,"logprob":`...)
	b = appendLogprob(b, logprob)
	b = append(b, `,"bytes":[`...)
	for i, c := range token {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(c), 10)
	}
	return append(b, ']')
}

// logprobFloor stands for minus infinity, which JSON does not have.
const logprobFloor = -9999

func appendLogprob(b []byte, x float32) []byte {
	switch {
	case x != x:
		return append(b, "null"...)
	case math.IsInf(float64(x), -1) || x < logprobFloor:
		x = logprobFloor
	}
	return strconv.AppendFloat(b, float64(x), 'g', -1, 32)
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. The output is always valid: what is not
// UTF-8 becomes U+FFFD, as chars has it. No character in it ends a line: readers of
// streams that split lines by Unicode's rule, as Python's str.splitlines does,
// would cut an event in two.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				size, _ = chars.Next(s[i:])
				b = append(append(b, s[start:i]...), "\ufffd"...)
				start = i + size
			case r == '\u0085' || r == '\u2028' || r == '\u2029':
				b = append(append(b, s[start:i]...), '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
				start = i + size
			}
			i += size
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}
