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

// appendTokenKey appends the key of all[i]. Keys are unique: if tokens have equal
// text, all but the likeliest are written by their ids.
func appendTokenKey(b []byte, all []wire.TopLogprob, i int) []byte {
	for j := range all[:i] {
		if bytes.Equal(all[j].Bytes, all[i].Bytes) {
			return appendTokenID(b, all[i].ID)
		}
	}
	return appendTokenText(b, all[i].ID, all[i].Bytes)
}
