package kvevents

import (
	"cmp"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/forebay-io/forebay/upstream/zmtp/zmtptest"
)

var quiet = slog.New(slog.DiscardHandler)

// patience bounds every wait; it is no measure of speed.
const patience = 20 * time.Second

func publisher(t *testing.T) *zmtptest.Publisher {
	t.Helper()
	p, err := zmtptest.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// follow follows a publisher, with what it gives again if replay is set.
func follow(t *testing.T, p *zmtptest.Publisher, replay bool) *Follower {
	cfg := Config{Events: p.Events(), BlocksMax: 1000, MessageBytesMax: 1 << 20}
	if replay {
		cfg.Replay = p.Replay()
	}
	f := followAt(t, cfg)
	eventually(t, "it listens", func() bool { return p.Hearers() == 1 }) // a publisher drops what nobody hears yet
	return f
}

func followAt(t *testing.T, cfg Config) *Follower {
	cfg.ConnectLimit, cfg.Again, cfg.Log = cmp.Or(cfg.ConnectLimit, patience), time.Millisecond, quiet
	f := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// holds waits until the prompt is held that far.
func holds(t *testing.T, f *Follower, tokens int, whole bool) {
	t.Helper()
	eventually(t, "what is held is known", func() bool {
		got, all := f.Match(chain(prompt, ""), false)
		return f.Report().Live && got == tokens && all == whole
	})
}

// one, two and three are batches, with a block of the prompt each.
var (
	one   = batch(vllm(nil, prompt[:2], []any{1}))
	two   = batch(vllm(1, prompt[2:4], []any{2}))
	three = batch(vllm(2, prompt[4:6], []any{3}))
)

// TestLateFollower: one who comes late and can have the events again knows all, whether
// the topic is given again or not (vllm-project/vllm#45174).
func TestLateFollower(t *testing.T) {
	for name, topic := range map[string][]byte{"with the topic": []byte("kv@host@m"), "without it": nil} {
		t.Run(name, func(t *testing.T) {
			p := publisher(t)
			p.Topic = topic
			p.Publish(one)
			p.Publish(two)
			f := follow(t, p, true)
			holds(t, f, 4, true)
			p.Publish(three)
			holds(t, f, 6, true)
			if n := f.Report().Gaps; n != 0 {
				t.Errorf("%d gaps", n)
			}
		})
	}
}

// TestNothingPublishedYet: an empty server is known to be empty.
func TestNothingPublishedYet(t *testing.T) {
	p := publisher(t)
	f := follow(t, p, true)
	holds(t, f, 0, true)
	p.Publish(one)
	holds(t, f, 2, true)
}

// TestPublishedOnTheWay: what is published while the subscription is on its way, so that
// nobody hears it, is known although no event comes after it.
func TestPublishedOnTheWay(t *testing.T) {
	p := publisher(t)
	p.Publish(one)
	p.Late = [][]byte{two}
	f := followAt(t, Config{Events: p.Events(), Replay: p.Replay(), BlocksMax: 1000, MessageBytesMax: 1 << 20, Settle: time.Millisecond})
	holds(t, f, 4, true)
	if n := f.Report().Gaps; n != 0 {
		t.Errorf("%d gaps", n)
	}
	eventually(t, "it listens", func() bool { return p.Hearers() == 1 })
	p.Publish(three)
	holds(t, f, 6, true)
}

// TestMissedEvents: llm-d/llm-d-router#1737. Events that were lost on the way are had again,
// or all that was known is forgotten: a block may have been removed.
func TestMissedEvents(t *testing.T) {
	removed := batch(gone("GPU", 1))
	t.Run("had again", func(t *testing.T) {
		p := publisher(t)
		f := follow(t, p, true)
		holds(t, f, 0, true)
		p.Publish(one)
		holds(t, f, 2, true)
		p.Lose(removed)
		p.Lose(one)
		p.Publish(two)
		holds(t, f, 4, true)
		if n := f.Report().Gaps; n != 1 {
			t.Errorf("%d gaps", n)
		}
	})
	t.Run("not kept so long", func(t *testing.T) {
		p := publisher(t)
		p.KeptMax = 1
		f := follow(t, p, true)
		holds(t, f, 0, true)
		p.Publish(one)
		holds(t, f, 2, true)
		p.Lose(two)
		p.Publish(batch(gone("GPU", 9)))
		holds(t, f, 0, false)
	})
	t.Run("not to be had", func(t *testing.T) {
		p := publisher(t)
		f := follow(t, p, false)
		p.Publish(one)
		holds(t, f, 2, true)
		p.Lose(removed)
		p.Publish(two)
		holds(t, f, 0, false)
		p.Publish(one)
		holds(t, f, 2, false)
	})
}

// TestConnectionLost: while the publisher cannot be heard nothing is claimed. After it
// what was missed is had again, or all is forgotten.
func TestConnectionLost(t *testing.T) {
	for name, replay := range map[string]bool{"had again": true, "forgotten": false} {
		t.Run(name, func(t *testing.T) {
			p := publisher(t)
			f := follow(t, p, replay)
			eventually(t, "the events before are known", func() bool { return !replay || f.Report().Live })
			p.Publish(one)
			holds(t, f, 2, true)
			p.Cut()
			p.Lose(two)
			if replay {
				holds(t, f, 4, true)
				return
			}
			eventually(t, "it listens again", func() bool { return !f.Report().Live && p.Hearers() == 1 })
			p.Publish(three)
			holds(t, f, 0, false)
		})
	}
}

// TestRestartedPublisher: a server that was started anew holds nothing of before, even
// where its numbers go on as the old ones would.
func TestRestartedPublisher(t *testing.T) {
	p := publisher(t)
	f := follow(t, p, true)
	holds(t, f, 0, true)
	p.Publish(one)
	p.Publish(two)
	holds(t, f, 4, true)
	p.Restart(batch(vllm(nil, []int32{9, 9}, []any{8})), one)
	holds(t, f, 2, true)
	if n := f.Report().Gaps; n == 0 {
		t.Error("the restart was not counted")
	}
}

// TestNotAPublisher: what sends other messages is told, and asked again.
func TestNotAPublisher(t *testing.T) {
	if _, _, err := parts([][]byte{[]byte("x")}); err == nil {
		t.Error("a message of one frame")
	}
	if _, _, err := parts([][]byte{[]byte("x"), []byte("y")}); err == nil {
		t.Error("a message without a number")
	}
	for _, bad := range []string{"", "http://a:1", "tcp://a", "ipc://a"} {
		if _, _, err := Network(bad); err == nil {
			t.Errorf("%q is an address", bad)
		}
	}
}
