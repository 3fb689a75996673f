// Package wiretest has what tests of the contract need: a scripted engine, and the
// conformance suite that every engine passes.
//
// A Fake plays a Script for each generation, and remembers what it was asked:
//
//	fake := wiretest.NewFake(wiretest.Script{Pieces: []string{"Hello", " world"}})
//	defer fake.Close()
//
// Scripts that differ by prompt, id or options are chosen by a function:
//
//	fake := wiretest.NewFakeWith(wiretest.FakeConfig{Script: func(g *wire.Generation) wiretest.Script {
//		if strings.Contains(g.Prompt.Text, "hang") {
//			return wiretest.Script{Hang: true}
//		}
//		return wiretest.Script{Endless: true, Delay: time.Millisecond}
//	}})
//
// The fake keeps the promises of package wire: it parks a generation whose reader
// is slow, pauses and resumes without loss, frees on cancel, and checks requests
// against its Model. A token is one byte of the prompt or one piece of the answer.
// The fake keeps a Record of every id as long as it lives, so it is not for loads
// of millions of requests.
//
// Run is the suite. It relies on nothing but the promises of an engine, so a Suite
// says which prompt and lengths suit the engine:
//
//	wiretest.Run(t, func(t *testing.T) wire.Engine {
//		e, err := engine.New(engine.Config{…})
//		…
//		t.Cleanup(func() { e.Close() })
//		return e
//	}, wiretest.Suite{Text: "once upon a time", Tokens: 24, LongTokens: 300, BufferMax: 64, ContextTokens: 512})
//
// It checks:
//
//   - the order of events: one finish for each choice, and one end, the last event;
//   - usage and timings;
//   - cancel frees everything, in every state;
//   - a slow reader parks its own generation, within the bound, and loses nothing;
//   - pause and resume lose nothing;
//   - the kinds of errors of Prepare and Generate;
//   - State goes on while the engine is idle;
//   - the parts of a generation's time sum to the whole, and no step's record is
//     missing;
//   - after Close every call fails.
package wiretest
