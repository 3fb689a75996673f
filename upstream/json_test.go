package upstream

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// FuzzMembers: of valid JSON, the members are those that encoding/json finds; nothing
// else breaks it.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{
		"{}", " { } ", "[]", "7", "", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":}`, `{"a" 1}`, `{"a":1}x`, `{"a":1 "b":2}`, `{"a":1,}`, `{a:1}`,
		`{"a":1,"b":"x","c":[1,{"d":"]}"}],"e":{"f":[]},"g":null,"h":-1.5e3 , "i" : true}`,
		`{"a\"b":"\\","c":"\\\"","d\u0061":"\\\\","":[[[]]],"a\"b":2}`, "{\"t\":\"a\\n\",\r\n\t\"u\":\"\u2028é\U0001F600\"}", `{"a":"`, `{"a":"\"}`, `{"a":"\\"}`, `{"a":]}`, `{"a":[}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got bytes.Buffer
		ok := eachMember(raw, func(name string, value json.RawMessage) bool {
			got.WriteString(name)
			got.WriteByte(0)
			got.Write(value)
			got.WriteByte(0)
			return true
		})
		if !json.Valid(raw) || !utf8.Valid(raw) {
			return
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		if start, _ := d.Token(); start != json.Delim('{') {
			if ok {
				t.Errorf("%q is taken for an object", raw)
			}
			return
		}
		var want bytes.Buffer
		for d.More() {
			name, _ := d.Token()
			var value json.RawMessage
			if err := d.Decode(&value); err != nil {
				t.Fatal(err)
			}
			want.WriteString(name.(string))
			want.WriteByte(0)
			want.Write(value)
			want.WriteByte(0)
		}
		if !ok || !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%q: %v, %q; want %q", raw, ok, got.Bytes(), want.Bytes())
		}
	})
}
