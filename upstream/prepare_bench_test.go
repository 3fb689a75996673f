package upstream

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
)

// BenchmarkPrepare takes apart a chat of some KiB, and estimates its prompt.
func BenchmarkPrepare(b *testing.B) {
	e := open(b, Config{URL: newPeer(b, nil).URL})
	for name, words := range map[string]int{"short": 20, "100KiB": 20 << 10} {
		messages, _ := json.Marshal([]map[string]string{{"role": "system", "content": "You help."}, {"role": "user", "content": strings.Repeat("word ", words)}})
		body := append(append([]byte(`{"model":"m","stream":true,"temperature":0.5,"messages":`), messages...), '}')
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Prepare(context.Background(), &wire.Request{ID: "1", Messages: messages, Body: body}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
