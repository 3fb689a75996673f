package upstream

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// TestGroupMistakes: what no request or server could choose between is refused, and the
// error says what to change.
func TestGroupMistakes(t *testing.T) {
	const a, b = "http://a", "http://b"
	servers := []Server{{URL: a, Name: "first"}, {URL: b}}
	group := func(id string, names ...string) Group { return Group{ModelID: id, Servers: names} }
	on := func(g Group, routes ...string) Group { g.Routes = routes; return g }
	for want, cfg := range map[string]Config{
		"": {Groups: []Group{group("large", "first"), group("small", b)}},
		"[1].servers: first is in the group large; a server can be in one group only":        {Groups: []Group{group("large", "first"), group("small", "first", b)}},
		"[1].servers: http://a is in the group large":                                        {Groups: []Group{group("large", "first"), group("small", a, b)}},
		`[0].servers: there is no server "second"`:                                           {Groups: []Group{group("large", "second", a, b)}},
		`[0].servers: there is no server "own"`:                                              {Groups: []Group{group("large", "own", a, b)}},
		"upstream.groups: the server http://b is in none":                                    {Groups: []Group{group("large", a)}},
		"[0].servers: list one at least":                                                     {Groups: []Group{group("large"), group("small", a, b)}},
		`[0].name: "a model" is not a name of 1 to 128 letters`:                              {Groups: []Group{group("a model", a, b)}},
		"[0].model_id: give the name":                                                        {Groups: []Group{group("", a, b)}},
		"[1].routes: the group large takes all routes of large already":                      {Groups: []Group{group("large", a), {ModelID: "large", Name: "x", Servers: []string{b}}}},
		"[1].name: another group is called large":                                            {Groups: []Group{group("large", a), on(group("large", b), "completions")}},
		`[0].routes: "embeddings" is none of chat_completions, completions, responses`:       {Groups: []Group{on(group("large", a, b), "embeddings")}},
		"[0].routes: no group takes the other routes of large; leave routes out of one":      {Groups: []Group{on(group("large", a, b), "completions")}},
		"[1].routes: completions of large goes to the group large already":                   {Groups: []Group{on(group("large", a), "completions"), on(Group{ModelID: "large", Name: "x", Servers: []string{b}}, "completions")}},
		"upstream.model_id: leave it out beside upstream.groups":                             {ModelID: "m", Groups: []Group{group("large", a, b)}},
		"upstream.groups: the engine of upstream.own_engine is in none; list own in the ser": {OwnEngine: "always", Groups: []Group{group("large", a, b)}},
		"upstream.groups: 17 groups; at most 16 are kept apart":                              {Groups: slices.Repeat([]Group{group("large", a, b)}, 17)},
	} {
		cfg.Servers = servers
		err := cfg.Mistakes()
		if got := ""; want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			if err != nil {
				got = err.Error()
			}
			t.Errorf("want %q; got\n%s", want, got)
		}
	}
	own := Config{Servers: servers, OwnEngine: "always", Groups: []Group{group("large", a, b), group("small", NameOwn)}}
	if err := own.Mistakes(); err != nil || own.OwnModelID() != "small" {
		t.Errorf("an engine of our own as a group: %v, under the name %q", err, own.OwnModelID())
	}
	one := Config{ContextTokens: 7, Tokenizer: "t", Groups: []Group{{ModelID: "m", Servers: []string{b}, ContextTokens: 9}}}
	if c := one.of(&one.Groups[0], servers); len(c.Servers) != 1 || c.Servers[0].URL != b || c.ContextTokens != 9 || c.Tokenizer != "t" || c.ModelID != "m" || len(c.Groups) > 0 {
		t.Errorf("of a group: %+v", c)
	}
}

// TestGroups: each group has its own model, places and servers, together they have all of
// them, and one serves while another has not been found.
func TestGroups(t *testing.T) {
	answer := func(text string) *peer {
		return newPeer(t, events(deltaChunk(`{"content":"`+text+`"}`, "stop"), usageChunk(3, 1), "[DONE]"))
	}
	large, also, small := answer("large"), answer("large"), answer("small")
	small.models = strings.ReplaceAll(oneModel, `"m"`, `"other"`)
	cfg := Config{
		URL: strings.Join([]string{large.URL, also.URL, small.URL, "http://127.0.0.1:1"}, ","), CheckInterval: 20 * time.Millisecond,
		Groups: []Group{{ModelID: "gone", Servers: []string{"http://127.0.0.1:1"}}, {ModelID: "chat", Servers: []string{large.URL, also.URL}}, {ModelID: "chat", Name: "texts", Routes: []string{"completions"}, Servers: []string{small.URL}}},
	}
	heard := map[string]*wire.State{} // written by one engine at a time, and read after Close
	g, err := NewGroups(cfg, func(group string, s *wire.State) {
		if group == "texts" {
			heard[group] = s
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := g.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all that are there are found", func() bool { return g.State().Places == 3*sequencesUnknown })
	if s := g.State(); s.Err != nil || s.Model.ID != "chat" || len(s.Upstreams) != 4 || s.Upstreams[3].Group != "texts" || s.Upstreams[0].State != "looking" {
		t.Errorf("together: %+v", s)
	}
	if s := g.Engines[0].State(); s.Err == nil {
		t.Error("a group whose server is gone says that it can serve")
	}
	for i, want := range map[int]string{1: "large", 2: "small"} {
		if got := chat(t, g.Engines[i], "", wire.Options{}); got.end.Err != nil || got.texts[0] != want {
			t.Errorf("group %d answers %q, %v", i, got.texts[0], got.end.Err)
		}
	}
	if s := g.State(); s.DecodeTokens != 2 || s.Sequences != 0 {
		t.Errorf("after two answers: %+v %+v", s.Totals, s.Load)
	}
	if err := g.DrainUpstream(small.URL, true); err != nil || g.Engines[2].State().Err != errDrained || g.State().Err != nil {
		t.Errorf("drained: %v; the group's error is %v, that of all %v", err, g.Engines[2].State().Err, g.State().Err)
	}
	if err := g.DrainUpstream("http://none", true); err == nil {
		t.Error("a server that is not there is drained")
	}
	if names, addresses := g.Name(), g.Addresses(); names != "openai" || strings.Count(addresses, "http") != 4 {
		t.Errorf("named %q at %q", names, addresses)
	}
	g.Close()
	if s := g.State(); s.Err == nil || heard["texts"].Err == nil {
		t.Errorf("after the end: %v, %v", s.Err, heard["texts"].Err)
	}
}
