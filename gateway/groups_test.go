package gateway

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// TestGroupOfARequest: the model says the group, and the route where a group lists it.
func TestGroupOfARequest(t *testing.T) {
	g := &Gateway{groups: []Group{
		{Name: "texts", Model: "chat", Routes: []string{"completions", "responses"}},
		{Name: "chat", Model: "chat"},
		{Name: "small", Model: "small"},
	}}
	for _, c := range []struct{ model, route, want string }{
		{"chat", "chat_completions", "chat"}, {"chat", "completions", "texts"}, {"chat", "responses", "texts"}, {"chat", "embeddings", "chat"},
		{"small", "completions", "small"}, {"large", "completions", ""}, {"", "completions", ""},
	} {
		of := g.groupOf(c.model, c.route)
		if of == nil {
			of = &Group{}
		}
		if of.Name != c.want {
			t.Errorf("%s of %s goes to %q, want %q", c.route, c.model, of.Name, c.want)
		}
	}
}

// otherModel is an engine under another name.
type otherModel struct {
	wire.Engine
	id  string
	err atomic.Pointer[wire.Error]
}

func (o *otherModel) State() *wire.State {
	s := *o.Engine.State()
	s.Model.ID, s.Err = o.id, o.err.Load()
	return &s
}

// TestTwoGroups: each model has its engine, is listed while that can serve, and the
// answer and the record say the group.
func TestTwoGroups(t *testing.T) {
	r := newRig(t, rigConfig{})
	large, small := &otherModel{Engine: r.fake, id: "large"}, &otherModel{Engine: r.fake, id: "small"}
	r.gw.groups = []Group{
		{Name: "gpus", Model: "large", Engine: large}, {Name: "small", Model: "small", Engine: small},
		{Name: "texts", Model: "large", Routes: []string{"completions", "messages"}, Engine: &otherModel{Engine: r.fake, id: "large"}},
	}
	ask := func(model string) response {
		return r.do("POST", "/v1/chat/completions", `{"model":"`+model+`","messages":[{"role":"user","content":"x"}]}`)
	}
	for model, group := range map[string]string{"large": "gpus", "small": "small"} {
		before := len(r.recorder.Last(100))
		got := ask(model)
		if got.status != http.StatusOK || got.header.Get(groupHeader) != group || !strings.Contains(got.body, `"model":"`+model+`"`) {
			t.Errorf("%s: %d, group %q, %s", model, got.status, got.header.Get(groupHeader), got.body)
		}
		if last := r.last(before); last.Group != group || last.Model != model {
			t.Errorf("recorded as %s of %s", last.Model, last.Group)
		}
	}
	before := len(r.recorder.Last(100))
	if got := r.do("POST", "/v1/completions", `{"model":"large","prompt":"x"}`); got.status != http.StatusOK || got.header.Get(groupHeader) != "texts" {
		t.Errorf("of a route: %d, group %q, %s", got.status, got.header.Get(groupHeader), got.body)
	}
	r.last(before)
	for _, path := range []string{"/v1/messages", "/v1/messages/count_tokens"} {
		before := len(r.recorder.Last(100))
		got := r.do("POST", path, `{"model":"large","max_tokens":3,"messages":[{"role":"user","content":"x"}]}`)
		if last := r.last(before); got.status != http.StatusOK || last.Group != "texts" {
			t.Errorf("%s: %d, group %q, %s", path, got.status, last.Group, got.body)
		}
	}
	if got := ask("other"); got.status != http.StatusNotFound || got.header.Get(groupHeader) != "" {
		t.Errorf("a model of no group: %d %s", got.status, got.body)
	}
	list := func(want ...string) {
		t.Helper()
		got := r.do("GET", "/v1/models", "")
		if n := strings.Count(got.body, `"id":`); n != len(want) {
			t.Errorf("%d models listed: %s", n, got.body)
		}
		for _, id := range want {
			if one := r.do("GET", "/v1/models/"+id, ""); one.status != http.StatusOK || !strings.Contains(got.body, `"id":"`+id+`"`) {
				t.Errorf("%s: %d %s", id, one.status, got.body)
			}
		}
	}
	list("large", "small")
	large.err.Store(wire.Errorf(wire.Unavailable, "it is gone"))
	list("small", "large") // which one of its groups can serve
	if got := ask("large"); got.status != http.StatusServiceUnavailable {
		t.Errorf("without its engine: %d %s", got.status, got.body)
	}
	if got := ask("small"); got.status != http.StatusOK {
		t.Errorf("beside it: %d %s", got.status, got.body)
	}
	small.err.Store(large.err.Load())
	r.gw.groups = r.gw.groups[:2]
	if got := r.do("GET", "/v1/models", ""); got.status != http.StatusServiceUnavailable {
		t.Errorf("without any: %d %s", got.status, got.body)
	}
}

// TestLevelsOfGroups: classes are summed over groups, and groups over classes.
func TestLevelsOfGroups(t *testing.T) {
	classes, groups := classLevels([]admission.ClassView{
		{Group: "a", Name: "x", Running: 1, Waiting: 2, Margin: 1}, {Group: "a", Name: "y", Waiting: 3}, {Group: "b", Name: "x", Running: 4, Margin: 2},
	})
	if len(classes) != 2 || classes[0] != (telemetry.ClassLevel{Name: "x", Running: 5, Waiting: 2, Margin: 2}) {
		t.Errorf("%+v", classes)
	}
	if len(groups) != 2 || groups[0] != (telemetry.GroupLevel{Name: "a", Running: 1, Waiting: 5}) || groups[1].Running != 4 {
		t.Errorf("%+v", groups)
	}
	if _, none := classLevels([]admission.ClassView{{Name: "x"}}); none != nil {
		t.Errorf("without groups: %+v", none)
	}
}
