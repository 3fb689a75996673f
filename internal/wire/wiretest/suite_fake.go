package wiretest

import (
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// FakeSuite is the Suite for a fake of FakeSuiteConfig.
func FakeSuite() Suite {
	return Suite{
		Text: "once upon a time", Tokens: 24, LongTokens: 200, BufferMax: 16, ContextTokens: 1024,
		Close: func(e wire.Engine) { e.(*Fake).Close() }, Limit: 20 * time.Second,
	}
}

// FakeSuiteConfig makes a fake that Run can hold to the contract, alone or
// behind a transport.
func FakeSuiteConfig() FakeConfig {
	return FakeConfig{
		Script: func(*wire.Generation) Script {
			return Script{Endless: true, Pieces: []string{"wörd ", "piece "}, Delay: 100 * time.Microsecond}
		},
		Model:        wire.Model{ContextTokens: 1024},
		WindowEvents: 16,
	}
}
