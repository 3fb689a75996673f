package upstream

import (
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// TestKeepsTheContract holds the engine to what the gateway relies on, but for what
// no other server tells.
func TestKeepsTheContract(t *testing.T) {
	wiretest.Run(t, func(t *testing.T) wire.Engine {
		p := newPeer(t, generates(100*time.Microsecond))
		e := open(t, Config{URL: p.URL, StreamEventsMax: 16, SequencesMax: 64})
		t.Cleanup(func() { e.Close() }) // before the server, which waits for its requests
		return e
	}, wiretest.Suite{
		Text: "once upon a time", Tokens: 24, LongTokens: 200, BufferMax: 16, ContextTokens: 1024, Relays: true,
		Close: func(e wire.Engine) { e.(*Engine).Close() }, Limit: patience,
	})
}
