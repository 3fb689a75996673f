// Package wiretest is what tests of the contract need: a scripted engine, and
// the conformance suite that every engine passes.
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
// The fake keeps the promises of package wire: it parks a generation whose
// reader is slow, pauses and resumes without loss, frees on cancel, and
// checks requests against its Model. A token is one byte of the prompt and
// one piece of the answer. It keeps a Record of every id for as long as it
// lives, so it is no place for a load of millions.
package wiretest
