package cli

import (
	"bytes"
	"log/slog"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/internal/supervise"
	"github.com/forebay-io/forebay/internal/wire"
)

func TestEngineViewLogsChangesAlone(t *testing.T) {
	away := func(why string) *wire.State { return &wire.State{Err: wire.Errorf(wire.Unavailable, "%s", why)} }
	ready := &wire.State{Pages: wire.Pages{PagesTotal: 1}}
	states := []*wire.State{away("starting"), away("no engine"), away("no engine"), away("loading"), ready, ready, away("gone"), away("gone"), away("no engine"), ready}
	for name, c := range map[string]struct {
		child *supervise.Supervisor
		want  string
	}{
		"its own process": {nil, `msg="waiting for the engine" reason="no engine" socket=/s
msg="waiting for the engine" reason=loading socket=/s
msg="the engine is lost" reason=gone
msg="waiting for the engine" reason="no engine" socket=/s
msg="the engine is back" model="" away=0s
`},
		"our child": {supervise.New(supervise.Config{}, supervise.Child{}), `msg="the engine is lost" reason=gone
msg="the engine is back" model="" away=0s
`},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			v := engineView{child: c.child, path: "/s", log: slog.New(slog.NewTextHandler(&log, nil))}
			for _, s := range states {
				v.heard(s)
			}
			v.stopping.Store(true)
			v.heard(away("stopped"))
			got := regexp.MustCompile(`time=\S+ level=\S+ `).ReplaceAllString(log.String(), "")
			got = regexp.MustCompile(`away=\S+`).ReplaceAllString(got, "away=0s")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReasonsForClientsHoldNoPath(t *testing.T) {
	e := wire.Errorf(wire.Unavailable, "no engine is serving /run/x/s: connect /run/x/s")
	alone := engineView{path: "/run/x/s"}
	if got := alone.public(e).Message; got != "no engine is serving its socket: connect its socket" {
		t.Errorf("got %q", got)
	}
	supervised := engineView{path: "/run/x/s", child: supervise.New(supervise.Config{}, supervise.Child{})}
	if got := supervised.public(e).Message; got != "the engine is starting" {
		t.Errorf("got %q", got)
	}
	if got := supervised.public(wire.InvalidParam("n", "n is odd")).Message; got != "n is odd" {
		t.Errorf("a client's mistake became %q", got)
	}
}
