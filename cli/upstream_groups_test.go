package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/forebay-io/forebay/gateway/debug"
)

// queuePage is the queue of a running gateway.
func (p *process) queuePage() (page debug.QueuePage) {
	response, err := http.Get(p.admin + "/debug/queue?format=json")
	if err != nil {
		return page
	}
	defer response.Body.Close()
	json.NewDecoder(response.Body).Decode(&page)
	return page
}

// TestFullGroupLetsOthersPass: while the servers of one model are full and its requests
// wait, those of another model pass, and an engine of our own answers for a third. What
// waits goes on when there is room, and answers, queue and metrics say the group.
func TestFullGroupLetsOthersPass(t *testing.T) {
	large, small := hold(t, "first", "second"), hold(t, "third", "fourth")
	close(small.released["third"])
	close(small.released["fourth"])
	file := filepath.Join(t.TempDir(), "forebay.yaml")
	config := fmt.Sprintf(`
admission: {default_class: offline}
upstream:
  sequences_max: 1
  own_engine: always
  servers:
    - {name: gpu, url: %q}
    - {name: cpu, url: %q}
  groups:
    - {model_id: chat-large, servers: [gpu], name: gpus}
    - {model_id: chat-small, servers: [cpu]}
    - {model_id: chat-own, servers: [own]}
`, large.URL, small.URL)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--config", file)
	eventually(t, "all servers are up", func() bool {
		up := 0
		for _, u := range p.queuePage().Upstreams {
			if u.State == "up" {
				up++
			}
		}
		return up == 3
	})
	var asked sync.WaitGroup
	ask := func(model, name string) {
		got := p.ask(chatBody(name, map[string]any{"model": model, "max_tokens": 3}))
		if group := strings.Replace(model, "chat-large", "gpus", 1); got.status != http.StatusOK || got.group != group {
			t.Errorf("%s of %s: %d, group %q, %s", name, model, got.status, got.group, got.raw)
		}
	}
	asked.Go(func() { ask("chat-large", "first") })
	eventually(t, "the first is inside", func() bool { arrived, _ := large.seen(); return len(arrived) == 1 })
	asked.Go(func() { ask("chat-large", "second") })
	eventually(t, "the second waits", func() bool { return p.waiting() == 1 })
	ask("chat-small", "third")
	ask("chat-own", "Hello!")
	ask("chat-small", "fourth")
	eventually(t, "the queue has what is left, with its group", func() bool {
		page := p.queuePage()
		return len(page.Waiting) == 1 && page.Waiting[0].Group == "gpus" && page.Waiting[0].Why == "sequences" && len(page.Running) == 1 && page.Running[0].Group == "gpus"
	})
	if text := said(t, p, "queue"); !strings.Contains(text, "gpus: interactive") || !strings.Contains(text, "chat-own: offline") {
		t.Errorf("forebay queue says\n%s", text)
	}
	if text := said(t, p, "upstream"); !strings.Contains(text, "own       chat-own ") {
		t.Errorf("forebay upstream says\n%s", text)
	}
	response, err := http.Get(p.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, _ := io.ReadAll(response.Body)
	response.Body.Close()
	for _, want := range []string{`forebay_group_requests{group="gpus",state="waiting"} 1`, `forebay_group_requests{group="chat-small",state="waiting"} 0`, `forebay_upstream_up{group="chat-small",kind="vllm",upstream="cpu"} 1`} {
		if !strings.Contains(string(metrics), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if got := p.ask(chatBody("x", map[string]any{"model": "m"})); got.status != http.StatusNotFound {
		t.Errorf("a server's own name for its model: %d %s", got.status, got.raw)
	}
	close(large.released["first"])
	eventually(t, "the second is inside", func() bool { arrived, _ := large.seen(); return len(arrived) == 2 })
	close(large.released["second"])
	asked.Wait()
	if _, most := large.seen(); most != 1 {
		t.Errorf("%d at once at the server of one place", most)
	}
	eventually(t, "the greeting says the models, and the access log the groups", func() bool {
		return strings.Contains(p.output(), "serves chat-large, chat-small, chat-own at ") && strings.Contains(p.output(), `"group":"gpus"`)
	})
}

// TestGroupsRefused: what cannot be together is refused before anything starts.
func TestGroupsRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"siblings and envoy.listen know one model only": {"--envoy.listen", "127.0.0.1:0"},
		"can be in one group only":                      {"--upstream.groups", "[{model_id: a, servers: ['http://127.0.0.1:1']}, {model_id: b, servers: ['http://127.0.0.1:1']}]"},
	} {
		all := append([]string{"serve", "--upstream", "http://127.0.0.1:1", "--upstream.groups", "[{model_id: a, servers: ['http://127.0.0.1:1']}]"}, args...)
		if out, status := run(t, "", all...); status != 1 || !strings.Contains(out, want) {
			t.Errorf("%q: status %d, %s", args, status, out)
		}
	}
}

// TestGroupsOfTheDocs: the file that docs/upstreams.md shows, with two groups of one model, is taken.
func TestGroupsOfTheDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("docs", "upstreams.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## Several models")
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	file, _, found := strings.Cut(rest, "```")
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil || !found || strings.Count(file, "model_id: chat-large") != 2 {
		t.Fatalf("%v: %q", err, file)
	}
	if out, status := run(t, "", "config", "check", "--config", path); status != 0 {
		t.Errorf("status %d, %s", status, out)
	}
	if out, status := run(t, "", "config", "check", "--config", path, "--upstream.groups", "[{model_id: chat-large, servers: [gpu1, own]}, {model_id: chat-large, name: other, servers: [gpu2, cpu]}]"); status != 1 || !strings.Contains(out, "takes all routes of chat-large already") {
		t.Errorf("status %d, %s", status, out)
	}
}
