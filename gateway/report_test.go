package gateway

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// socketFake puts a fake behind a socket whose client gives every state to queue.
func socketFake(t *testing.T, queue *admission.Queue) *wiretest.Fake {
	t.Helper()
	fake := wiretest.NewFakeWith(wiretest.FakeConfig{})
	t.Cleanup(func() { fake.Close() })
	path := filepath.Join(t.TempDir(), "e.sock")
	ln, err := wire.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- wire.Serve(ctx, ln, fake, wire.ServerConfig{HeartbeatInterval: 10 * time.Millisecond})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	var reporter Reporter
	client, err := wire.NewClient(wire.Config{Path: path, OnState: func(s *wire.State) {
		report := reporter.Report(s)
		report.Cost = cost.Cost{Base: 1e6, PrefillToken: 1e6, DecodeRow: 1e6}
		queue.Report(report)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return fake
}

// TestAdmissionBelievesTheCacheAfterMissedChanges: a request waits, and the
// blocks of its prompt come and go in the engine. What admission believes to be
// uncached follows, also where the blocks went in changes that nobody heard.
func TestAdmissionBelievesTheCacheAfterMissedChanges(t *testing.T) {
	queue, err := admission.NewQueue(admission.Config{RunningSequencesMax: 1}, Clock)
	if err != nil {
		t.Fatal(err)
	}
	defer queue.Close()
	fake := socketFake(t, queue)
	for _, w := range []admission.Demand{
		{Class: "batch", Sequences: 1, PromptTokens: 10, UncachedTokens: 10, DecodeTokens: 1},
		{Class: "batch", Sequences: 1, PromptTokens: 1000, UncachedTokens: 1000, DecodeTokens: 1, Blocks: []uint64{1, 2, 3}, BlockTokens: 300},
	} {
		ticket, err := queue.Admit(w)
		if err != nil {
			t.Fatal(err)
		}
		defer ticket.Done(admission.Spent{})
	}
	believe := func(when string, want int) {
		t.Helper()
		got := 0
		for limit := time.Now().Add(10 * time.Second); got != want && time.Now().Before(limit); time.Sleep(time.Millisecond) {
			if v := queue.View(); len(v.Waiting) == 1 {
				got = v.Waiting[0].Uncached
			}
		}
		if got != want {
			t.Fatalf("%s: %d tokens are believed to be uncached, want %d", when, got, want)
		}
	}
	believe("at first", 1000)
	fake.ChangeBlocks(hitmap.Change{Hash: 1}, hitmap.Change{Hash: 2})
	believe("two blocks are cached", 400)
	changes := []hitmap.Change{{Hash: 1, Evicted: true}, {Hash: 2, Evicted: true}}
	for i := range uint64(2 * hitmap.JournalMax) { // more than the journal keeps
		changes = append(changes, hitmap.Change{Hash: 10 + i/2, Evicted: i%2 == 1})
	}
	fake.ChangeBlocks(changes...)
	believe("they went unheard", 1000)
	fake.ChangeBlocks(hitmap.Change{Hash: 1})
	believe("the first is cached again", 700)
}
