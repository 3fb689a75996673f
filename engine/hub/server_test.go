package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// server is a hub with one repository, and the store that it redirects to for
// large files.
type server struct {
	t     *testing.T
	hub   *httptest.Server
	store *httptest.Server

	mu     sync.Mutex
	commit string
	files  map[string]string // of the commit
	large  map[string]bool   // served by the store
	log    []string          // METHOD PATH RANGE of each request
	// Before the usual answer; true means that it has answered.
	intercept func(w http.ResponseWriter, r *http.Request) bool
	bare      bool   // the listing tells names alone
	token     string // "" serves everybody
}

const repo = "acme/tiny"

func newServer(t *testing.T, files map[string]string) *server {
	s := &server{t: t, commit: strings.Repeat("1", 40), files: files, large: map[string]bool{}}
	for name := range files {
		s.large[name] = strings.HasSuffix(name, ".gguf") || strings.HasSuffix(name, ".safetensors")
	}
	s.hub = httptest.NewServer(http.HandlerFunc(s.serveHub))
	s.store = httptest.NewServer(http.HandlerFunc(s.serveStore))
	t.Cleanup(func() { s.hub.Close(); s.store.Close() })
	return s
}

func (s *server) note(r *http.Request) {
	s.log = append(s.log, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
}

// requests forgets what it returns.
func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

func (s *server) serveHub(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(r)
	if s.intercept != nil && s.intercept(w, r) {
		return
	}
	if s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token {
		w.Header().Set("X-Error-Code", "GatedRepo")
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if revision, ok := strings.CutPrefix(r.URL.Path, "/api/models/"+repo+"/revision/"); ok {
		if revision != "main" && revision != s.commit {
			w.Header().Set("X-Error-Code", "RevisionNotFound")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"id": repo, "sha": s.commit, "siblings": s.siblings()})
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/"+repo+"/resolve/"+s.commit+"/")
	text, have := s.files[name]
	if !ok || !have {
		w.Header().Set("X-Error-Code", "EntryNotFound")
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("X-Repo-Commit", s.commit)
	if s.large[name] {
		w.Header().Set("X-Linked-Etag", `"`+etagOf(text, true)+`"`)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(text)))
		http.Redirect(w, r, s.store.URL+"/"+name, http.StatusFound)
		return
	}
	w.Header().Set("ETag", `W/"`+etagOf(text, false)+`"`)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
}

func (s *server) siblings() (list []map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		text := s.files[name]
		one := map[string]any{"rfilename": name}
		if !s.bare {
			one["size"], one["blobId"] = len(text), etagOf(text, false)
		}
		if s.large[name] && !s.bare {
			one["lfs"] = map[string]any{"sha256": etagOf(text, true), "size": len(text)}
		}
		list = append(list, one)
	}
	return list
}

func etagOf(text string, large bool) string {
	if large {
		return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	}
	return fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text)))
}

func (s *server) serveStore(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(r)
	if token := r.Header.Get("Authorization"); token != "" {
		s.t.Errorf("the store was sent %q", token)
	}
	if s.intercept != nil && s.intercept(w, r) {
		return
	}
	text, ok := s.files[strings.TrimPrefix(r.URL.Path, "/")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", `"a-name-of-the-store"`)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
}

// client is a hub client whose waits take no time.
type client struct {
	*Hub
	warnings []string
	waits    []time.Duration
	states   []Progress
}

func (s *server) client(dir string, change func(*Config)) *client {
	s.t.Helper()
	c := &client{}
	cfg := Config{
		CacheDir: dir, Endpoint: s.hub.URL, UserAgent: "test", StallLimit: 20 * time.Second,
		Warn:     func(text string) { c.warnings = append(c.warnings, text) },
		Progress: func(p Progress) { c.states = append(c.states, p) },
		Random:   func() float64 { return 0.5 },
		Sleep: func(ctx context.Context, d time.Duration) error {
			c.waits = append(c.waits, d)
			return ctx.Err()
		},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if c.Hub, err = New(cfg); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

func ref(t *testing.T, text string) Ref {
	t.Helper()
	r, err := ParseRef(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
