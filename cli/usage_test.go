package cli

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/forebay-io/forebay/gateway/usage"
)

// TestUsageIsWrittenOnceOverRestarts: Forebay is stopped and killed between requests,
// and every request has exactly one line, in files with numbers without a gap.
func TestUsageIsWrittenOnceOverRestarts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "usage.jsonl")
	asked := map[string]bool{}
	for _, stop := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM} {
		p := serve(t, "--usage.file", file, "--usage.file_bytes_max", "4096")
		var all sync.WaitGroup
		var mu sync.Mutex
		for i := range 12 {
			all.Go(func() {
				response, err := p.post(t.Context(), chatBody("hi", map[string]any{"max_tokens": 1 + i%3, "user": "u"}))
				if err != nil {
					t.Error(err)
					return
				}
				defer response.Body.Close()
				var body struct{ ID string }
				if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				asked[strings.TrimPrefix(body.ID, "chatcmpl-")] = true
			})
		}
		all.Wait()
		eventually(t, "the lines are written", func() bool { return p.metric("forebay_usage_lines_total") == 12 })
		p.cmd.Process.Signal(stop)
		<-p.ended
	}
	names, _ := filepath.Glob(file + ".0*")
	slices.Sort(names)
	if len(names) < 2 {
		t.Errorf("%d full files", len(names))
	}
	seq := uint64(0)
	for _, name := range append(names, file) {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			var l usage.Line
			if err := json.Unmarshal(s.Bytes(), &l); err != nil {
				t.Fatal(err)
			}
			if seq++; l.Seq != seq || !asked[l.ID] || l.Tenant != "default" || len(l.User) != 24 || !l.Charged || l.CachedTokens+l.ComputedTokens != l.PromptTokens {
				t.Errorf("line %d is %s", seq, s.Text())
			}
			delete(asked, l.ID)
		}
	}
	if len(asked) > 0 {
		t.Errorf("%d requests have no line", len(asked))
	}
}
