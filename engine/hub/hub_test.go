package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const ggufName = "tiny-Q4_0.gguf"

// body is long enough to break off in the middle of.
var body = strings.Repeat("0123456789abcdef", 1<<13)

func oneFile() map[string]string { return map[string]string{ggufName: body, "README.md": "# tiny"} }

func (c *client) mustPull(t *testing.T, text string) Model {
	t.Helper()
	m, err := c.Pull(t.Context(), ref(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPullLeavesTheHubsLayout(t *testing.T) {
	s, dir := newServer(t, oneFile()), t.TempDir()
	c := s.client(dir, nil)
	m := c.mustPull(t, "hf:acme/tiny")
	root := filepath.Join(dir, "models--acme--tiny")
	if want := filepath.Join(root, "snapshots", s.commit, ggufName); m.Path != want || m.Name != "tiny-Q4_0" || m.Commit != s.commit {
		t.Errorf("got %+v, want the path %s", m, want)
	}
	if to, _ := os.Readlink(m.Path); to != filepath.Join("..", "..", "blobs", etagOf(body, true)) {
		t.Errorf("the link leads to %q", to)
	}
	if read(t, m.Path) != body || read(t, filepath.Join(root, "refs", "main")) != s.commit {
		t.Error("the file or the ref is wrong")
	}
	want := []string{
		"GET /api/models/acme/tiny/revision/main",
		"GET /acme/tiny/resolve/" + s.commit + "/" + ggufName,
		"GET /" + ggufName,
	}
	if diff := cmp.Diff(want, s.requests()); diff != "" {
		t.Error(diff)
	}
	if last := c.states[len(c.states)-1]; last != (Progress{ggufName, 1, 1, int64(len(body)), int64(len(body)), true}) {
		t.Errorf("the last progress is %+v", last)
	}
}

func TestRequestsOfWhatIsCached(t *testing.T) {
	s, dir := newServer(t, oneFile()), t.TempDir()
	s.client(dir, nil).mustPull(t, "hf:acme/tiny")
	s.requests()
	offline := func(cfg *Config) { cfg.Offline = true }
	for _, c := range []struct {
		ref    string
		change func(*Config)
		want   int
	}{
		{"hf:acme/tiny", nil, 1},
		{"hf:acme/tiny:q4_0", nil, 1},
		{"hf:acme/tiny@" + s.commit, nil, 0},
		{"hf:acme/tiny@" + s.commit + ":Q4_0", nil, 0},
		{"hf:acme/tiny", offline, 0},
		{"hf:acme/tiny:" + ggufName, offline, 0},
	} {
		m := s.client(dir, c.change).mustPull(t, c.ref)
		if got := s.requests(); len(got) != c.want || read(t, m.Path) != body {
			t.Errorf("%s: requests %q, want %d", c.ref, got, c.want)
		}
	}
	os.RemoveAll(filepath.Join(dir, "models--acme--tiny", "trees")) // as older tools of the Hub leave it
	s.client(dir, offline).mustPull(t, "hf:acme/tiny:q4_0")
	s.client(dir, nil).mustPull(t, "hf:acme/tiny@"+s.commit+":"+ggufName)
	if got := s.requests(); len(got) != 0 {
		t.Errorf("without trees: requests %q", got)
	}
	if _, err := s.client(t.TempDir(), offline).Pull(t.Context(), ref(t, "hf:acme/tiny")); err == nil || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") {
		t.Errorf("offline with an empty cache: %v", err)
	}
}

func TestHubOutOfReach(t *testing.T) {
	s, dir := newServer(t, oneFile()), t.TempDir()
	s.client(dir, nil).mustPull(t, "hf:acme/tiny")
	for _, status := range []int{429, 500, 503, 401, 403} {
		s.intercept = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(status); return true }
		c := s.client(dir, nil)
		c.mustPull(t, "hf:acme/tiny")
		if len(c.warnings) != 1 || !strings.Contains(c.warnings[0], "using what is cached") || len(c.waits) > 0 {
			t.Errorf("status %d: warnings %q, waits %v", status, c.warnings, c.waits)
		}
	}
	s.intercept = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(404); return true }
	if _, err := s.client(dir, nil).Pull(t.Context(), ref(t, "hf:acme/tiny")); err == nil {
		t.Error("a repository that is gone is served from the cache, and nobody told")
	}
	s.hub.Close()
	c := s.client(dir, nil)
	c.mustPull(t, "hf:acme/tiny")
	if len(c.warnings) != 1 {
		t.Errorf("no network: warnings %q", c.warnings)
	}
	c = s.client(t.TempDir(), nil)
	if _, err := c.Pull(t.Context(), ref(t, "hf:acme/tiny")); err == nil || len(c.waits) != 4 {
		t.Errorf("no network, no cache: %v after the waits %v; want an error after four", err, c.waits)
	}
}

// brokenOff answers GETs of the store n times with a part of what is asked for.
func (s *server) brokenOff(n int) {
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/"+ggufName || n == 0 {
			return false
		}
		n--
		var from int
		fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
		rest := body[from:]
		w.Header().Set("Content-Length", fmt.Sprint(len(rest)))
		if from > 0 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(body)-1, len(body)))
			w.WriteHeader(http.StatusPartialContent)
		}
		fmt.Fprint(w, rest[:len(rest)/4])
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

func TestBrokenOffGoesOn(t *testing.T) {
	s := newServer(t, oneFile())
	s.brokenOff(7) // more than the attempts without progress
	c := s.client(t.TempDir(), nil)
	if m := c.mustPull(t, "hf:acme/tiny"); read(t, m.Path) != body {
		t.Error("the file differs")
	}
	got := slices.DeleteFunc(s.requests(), func(line string) bool { return !strings.HasPrefix(line, "GET /"+ggufName) })
	if len(got) != 8 || got[1] != fmt.Sprintf("GET /%s bytes=%d-", ggufName, len(body)/4) {
		t.Errorf("requests %q", got)
	}
	if len(c.waits) != 7 || c.waits[6] != 750*time.Millisecond {
		t.Errorf("waits %v; progress starts them anew", c.waits)
	}
}

// partial pulls and stops after the first bytes; it returns the path of what is left.
func (s *server) partial(t *testing.T, dir string) string {
	t.Helper()
	s.brokenOff(1)
	c := s.client(dir, func(cfg *Config) { cfg.AttemptsMax = 1 })
	if _, err := c.Pull(t.Context(), ref(t, "hf:acme/tiny")); err == nil {
		t.Fatal("a broken connection is no error")
	}
	s.intercept = nil
	s.requests()
	path := filepath.Join(dir, "models--acme--tiny", "blobs", etagOf(body, true)+incomplete)
	if got := read(t, path); got != body[:len(body)/4] {
		t.Fatalf("%d bytes were kept", len(got))
	}
	return path
}

func TestNextPullGoesOn(t *testing.T) {
	whole := func(w http.ResponseWriter, r *http.Request) bool {
		r.Header.Del("Range")
		return false
	}
	refuses := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") == "" || r.URL.Path != "/"+ggufName {
			return false
		}
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		return true
	}
	wrongRange := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") == "" || r.URL.Path != "/"+ggufName {
			return false
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(body)-1, len(body)))
		w.WriteHeader(http.StatusPartialContent)
		return true
	}
	for name, c := range map[string]struct {
		left      func(path string)
		intercept func(http.ResponseWriter, *http.Request) bool
		gets      int // of the store
	}{
		"from where it stopped":     {func(string) {}, nil, 1},
		"range ignored":             {func(string) {}, whole, 1},
		"range refused":             {func(string) {}, refuses, 2},
		"another range":             {func(string) {}, wrongRange, 2},
		"what was left is wrong":    {func(path string) { os.WriteFile(path, []byte("wrong"), 0o644) }, nil, 2},
		"what was left is too much": {func(path string) { os.WriteFile(path, []byte(body+"more"), 0o644) }, nil, 1},
		"all of it was left":        {func(path string) { os.WriteFile(path, []byte(body), 0o644) }, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newServer(t, oneFile()), t.TempDir()
			path := s.partial(t, dir)
			c.left(path)
			s.intercept = c.intercept
			if m := s.client(dir, nil).mustPull(t, "hf:acme/tiny"); read(t, m.Path) != body {
				t.Error("the file differs")
			}
			got := slices.DeleteFunc(s.requests(), func(line string) bool { return !strings.HasPrefix(line, "GET /"+ggufName) })
			if len(got) != c.gets {
				t.Errorf("requests %q, want %d", got, c.gets)
			}
			if _, err := os.Lstat(path); err == nil {
				t.Error("the partial file is still there")
			}
		})
	}
}

func TestChangedBetweenTwoPulls(t *testing.T) {
	s, dir := newServer(t, oneFile()), t.TempDir()
	s.partial(t, dir)
	other := strings.Repeat("zyxw", 1000)
	s.mu.Lock()
	s.commit, s.files[ggufName] = strings.Repeat("2", 40), other
	s.mu.Unlock()
	c := s.client(dir, nil)
	if m := c.mustPull(t, "hf:acme/tiny"); read(t, m.Path) != other {
		t.Error("not the new file")
	}
}

func TestInterruptKeepsWhatCame(t *testing.T) {
	s, dir := newServer(t, oneFile()), t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	c := s.client(dir, func(cfg *Config) {
		cfg.Progress = func(Progress) { cancel(errors.New("interrupted")) }
	})
	s.brokenOff(1)
	if _, err := c.Pull(ctx, ref(t, "hf:acme/tiny")); err == nil || !strings.Contains(err.Error(), "interrupted") || !strings.Contains(err.Error(), "kept") {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "models--acme--tiny", "blobs", "*"+incomplete)); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}

func TestPullsAtOnceDownloadOnce(t *testing.T) {
	s, dir := newServer(t, oneFile()), t.TempDir()
	var all sync.WaitGroup
	for range 4 {
		c := s.client(dir, func(cfg *Config) { cfg.Sleep = nil })
		all.Go(func() {
			if m, err := c.Pull(t.Context(), Ref{Repo: repo}); err != nil || read(t, m.Path) != body {
				t.Errorf("%+v, %v", m, err)
			}
		})
	}
	all.Wait()
	if got := slices.DeleteFunc(s.requests(), func(line string) bool { return line != "GET /"+ggufName }); len(got) != 1 {
		t.Errorf("downloads: %q", got)
	}
}

func TestDiskThatIsTooSmall(t *testing.T) {
	s, dir := newServer(t, oneFile()), t.TempDir()
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		fmt.Fprintf(w, `{"sha": %q, "siblings": [{"rfilename": "x.gguf", "size": %d, "blobId": "aa"}]}`, s.commit, int64(1)<<60)
		return true
	}
	if _, err := s.client(dir, nil).Pull(t.Context(), ref(t, "hf:acme/tiny")); err == nil || !strings.Contains(err.Error(), "are needed: make room") {
		t.Errorf("got %v", err)
	}
}

func TestFolderOfSafetensors(t *testing.T) {
	s, dir := newServer(t, map[string]string{
		"config.json": "{}", "tokenizer.json": "{}", "model-00001-of-00002.safetensors": "one", "model-00002-of-00002.safetensors": "two",
		"model.safetensors.index.json": "{}", "pytorch_model.bin": "no", "README.md": "no",
	}), t.TempDir()
	m := s.client(dir, nil).mustPull(t, "hf:acme/tiny")
	names, _ := filepath.Glob(filepath.Join(m.Path, "*"))
	if len(names) != 5 || m.Name != "tiny" || read(t, filepath.Join(m.Path, "model-00002-of-00002.safetensors")) != "two" {
		t.Errorf("%+v has %q", m, names)
	}
	os.Remove(names[0])
	if _, err := s.client(dir, func(cfg *Config) { cfg.Offline = true }).Pull(t.Context(), ref(t, "hf:acme/tiny")); err == nil || !strings.Contains(err.Error(), "config.json of hf:acme/tiny is not in") {
		t.Errorf("offline, and a file is missing: %v", err)
	}
}

// Where the file system has no links, the snapshot has the files themselves.
func TestCacheWithoutLinks(t *testing.T) {
	s, dir := newServer(t, oneFile()), t.TempDir()
	c := s.client(dir, nil)
	m := c.mustPull(t, "hf:acme/tiny")
	target, _ := filepath.EvalSymlinks(m.Path)
	os.Remove(m.Path)
	if err := copyFile(target, m.Path); err != nil {
		t.Fatal(err)
	}
	s.requests()
	c.mustPull(t, "hf:acme/tiny")
	if got := s.requests(); len(got) != 1 {
		t.Errorf("requests %q", got)
	}
	if removed, err := c.Remove(ref(t, "hf:acme/tiny:Q4_0")); err != nil || removed.Bytes < 2*int64(len(body)) || len(c.filesLeft(t)) != 0 {
		t.Errorf("%+v, %v, left %q", removed, err, c.filesLeft(t))
	}
}

func TestListingThatTellsNamesAlone(t *testing.T) {
	s := newServer(t, oneFile())
	s.bare = true
	c := s.client(t.TempDir(), nil)
	for _, name := range []string{ggufName, "README.md"} {
		m := c.mustPull(t, "hf:acme/tiny:"+name)
		if read(t, m.Path) != s.files[name] {
			t.Errorf("%s differs", name)
		}
	}
	if len(c.warnings) > 0 {
		t.Errorf("warnings %q", c.warnings)
	}
}
