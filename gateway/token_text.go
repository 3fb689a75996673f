package gateway

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/forebay-io/forebay/internal/wire"
)

// The legacy route names tokens by strings alone, and uses these as keys. A
// token that is part of a character is written bytes:\xe2\x9c, as OpenAI does. A
// token without text, a control token, is written by its id.

func appendTokenText(b []byte, id int32, text []byte) []byte {
	switch {
	case len(text) == 0:
		return appendTokenID(b, id)
	case utf8.Valid(text):
		return appendString(b, string(text))
	}
	b = append(b, `"bytes:`...)
	for _, c := range text {
		b = append(b, '\\', '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
	}
	return append(b, '"')
}

func appendTokenID(b []byte, id int32) []byte {
	b = strconv.AppendInt(append(b, `"<|token:`...), int64(id), 10)
	return append(b, `|>"`...)
}

// appendTops appends the legacy list of one position: the likeliest tokens, and the
// token itself where it is not among them. The first token of a prompt has no list,
// since nothing predicts it.
func appendTops(b []byte, t *wire.TokenLogprob) []byte {
	if t.Logprob != t.Logprob {
		return append(b, "null"...)
	}
	b = append(b, '{')
	listed := false
	for i := range t.Top {
		listed = listed || t.Top[i].ID == t.ID
		b = appendLogprob(append(appendTopKey(b, t, i), ':'), t.Top[i].Logprob)
		b = append(b, ',')
	}
	if !listed {
		b = append(appendTokenText(b, t.ID, t.Bytes), ':')
		return append(appendLogprob(b, t.Logprob), '}')
	}
	b[len(b)-1] = '}'
	return b
}

// appendTopKey appends the key of t.Top[i]. Keys are unique: where tokens have
// equal text, the token itself has it, or else the likeliest of them, and the
// others are written by their ids.
func appendTopKey(b []byte, t *wire.TokenLogprob, i int) []byte {
	top := &t.Top[i]
	if top.ID != t.ID {
		if bytes.Equal(top.Bytes, t.Bytes) {
			return appendTokenID(b, top.ID)
		}
		for j := range t.Top[:i] {
			if bytes.Equal(t.Top[j].Bytes, top.Bytes) {
				return appendTokenID(b, top.ID)
			}
		}
	}
	return appendTokenText(b, top.ID, top.Bytes)
}

// appendScored appends the prompt's log-probabilities as a member of their own.
func (c *choiceState) appendScored(b []byte) []byte {
	if c.scored == nil {
		return b
	}
	return append(append(b, `,"prompt_logprobs":`...), c.scored...)
}

// appendPromptLogprobs appends them in the form of vLLM: null for the first token, then for
// each an object of token ids.
func appendPromptLogprobs(b []byte, all []wire.TokenLogprob) []byte {
	b = append(b, '[')
	for i := range all {
		t := &all[i]
		if i > 0 {
			b = append(b, ',')
		}
		if t.Logprob != t.Logprob {
			b = append(b, "null"...)
			continue
		}
		b = append(b, '{')
		listed := false
		for rank := range t.Top {
			top := &t.Top[rank]
			listed = listed || top.ID == t.ID
			b = append(appendRanked(b, top.ID, top.Bytes, top.Logprob, rank+1), ',')
		}
		if !listed {
			b = append(appendRanked(b, t.ID, t.Bytes, t.Logprob, t.Rank), ',')
		}
		b[len(b)-1] = '}'
	}
	return append(b, ']')
}

func appendRanked(b []byte, id int32, bytes []byte, logprob float32, rank int) []byte {
	b = strconv.AppendInt(append(b, '"'), int64(id), 10)
	b = appendLogprob(append(b, `":{"logprob":`...), logprob)
	b = strconv.AppendInt(append(b, `,"rank":`...), int64(rank), 10)
	return append(appendTokenText(append(b, `,"decoded_token":`...), id, bytes), '}')
}
