package hub

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWrongBytesAreDeleted(t *testing.T) {
	for _, name := range []string{ggufName, "README.md"} {
		s, dir := newServer(t, oneFile()), t.TempDir()
		s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/api/") || !strings.HasSuffix(r.URL.Path, name) || strings.Contains(r.URL.Path, "resolve") == s.large[name] {
				return false
			}
			fmt.Fprint(w, strings.ToUpper(s.files[name]))
			return true
		}
		_, err := s.client(dir, nil).Pull(t.Context(), ref(t, "hf:acme/tiny:"+name))
		if err == nil || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "models--acme--tiny", "*", "*")); len(left) > 0 {
			t.Errorf("%s: left behind: %q", name, left)
		}
	}
}

func TestWhatAServerMayDoWrong(t *testing.T) {
	for name, c := range map[string]struct {
		intercept func(s *server, w http.ResponseWriter, r *http.Request) bool
		want      string
	}{
		"longer than it said": {func(s *server, w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/"+ggufName {
				fmt.Fprint(w, body)
				http.NewResponseController(w).Flush()
				fmt.Fprint(w, "more")
				return true
			}
			return false
		}, "sends more than"},
		"redirects forever": {func(s *server, w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
			return true
		}, "redirects more than"},
		"redirects to a file": {func(s *server, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
			return true
		}, "redirects to"},
		"answers a page": {func(s *server, w http.ResponseWriter, r *http.Request) bool {
			fmt.Fprint(w, "<html>log in</html>")
			return true
		}, "is no listing"},
		"names a commit that is a path": {func(s *server, w http.ResponseWriter, r *http.Request) bool {
			fmt.Fprint(w, `{"sha": "../../../x", "siblings": []}`)
			return true
		}, "is no listing"},
		"names a file outside": {func(s *server, w http.ResponseWriter, r *http.Request) bool {
			fmt.Fprintf(w, `{"sha": %q, "siblings": [{"rfilename": "../../../../x.gguf", "size": 1, "blobId": "aa"}]}`, s.commit)
			return true
		}, "is not safe"},
		"names a blob outside": {func(s *server, w http.ResponseWriter, r *http.Request) bool {
			fmt.Fprintf(w, `{"sha": %q, "siblings": [{"rfilename": "x.gguf", "size": 1, "blobId": "../../x"}]}`, s.commit)
			return true
		}, "does not say enough"},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newServer(t, oneFile()), t.TempDir()
			s.intercept = func(w http.ResponseWriter, r *http.Request) bool { return c.intercept(s, w, r) }
			if _, err := s.client(dir, nil).Pull(t.Context(), ref(t, "hf:acme/tiny")); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "models--acme--tiny", "snapshots", "*")); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		ref, token, code string
		status           int
		want             string
	}{
		{"hf:acme/tiny", "", "GatedRepo", 401, "accept the licence at"},
		{"hf:acme/tiny", "hf_x", "GatedRepo", 403, "the token's account has not"},
		{"hf:acme/tiny", "", "RepoNotFound", 401, "check the name, or set HF_TOKEN"},
		{"hf:acme/tiny", "hf_x", "", 401, "not for the token"},
		{"hf:acme/tiny", "hf_x", "", 403, "access is refused"},
		{"hf:acme/tiny@v2", "", "RevisionNotFound", 404, `there is no revision "v2"`},
		{"hf:acme/tiny", "", "", 404, "no such repository"},
	} {
		s := newServer(t, oneFile())
		s.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("X-Error-Code", c.code)
			w.WriteHeader(c.status)
			return true
		}
		client := s.client(t.TempDir(), func(cfg *Config) { cfg.Token = c.token })
		_, err := client.Pull(t.Context(), ref(t, c.ref))
		if err == nil || !strings.Contains(err.Error(), c.want) || len(client.waits) > 0 || c.token != "" && strings.Contains(err.Error(), c.token) {
			t.Errorf("%d %s: got %v after %v, want %q", c.status, c.code, err, client.waits, c.want)
		}
	}
}

// The store fails the test when it is sent a token.
func TestTokenGoesToTheEndpointAlone(t *testing.T) {
	s := newServer(t, oneFile())
	s.token = "hf_secret"
	s.client(t.TempDir(), func(cfg *Config) { cfg.Token = "hf_secret" }).mustPull(t, "hf:acme/tiny")
}

func TestRetryAfterIsObeyed(t *testing.T) {
	s := newServer(t, oneFile())
	refusals := []string{"7", "", "Thu, 01 Jan 2099 00:00:00 GMT"}
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if len(refusals) == 0 {
			return false
		}
		w.Header().Set("Retry-After", refusals[0])
		refusals = refusals[1:]
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	c := s.client(t.TempDir(), nil)
	c.mustPull(t, "hf:acme/tiny")
	if want := []time.Duration{7 * time.Second, 1500 * time.Millisecond, retryAfterMax}; !slices.Equal(c.waits, want) {
		t.Errorf("waits %v, want %v", c.waits, want)
	}
}

func TestExpiredAddressOfTheStore(t *testing.T) {
	s := newServer(t, oneFile())
	refused := false
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/"+ggufName || refused {
			return false
		}
		refused = true
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	c := s.client(t.TempDir(), nil)
	if m := c.mustPull(t, "hf:acme/tiny"); read(t, m.Path) != body || len(c.waits) != 1 {
		t.Errorf("waits %v", c.waits)
	}
}

func TestStalledConnectionIsGivenUp(t *testing.T) {
	s := newServer(t, oneFile())
	ended := make(chan struct{})
	stalls := 1
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/"+ggufName || stalls == 0 {
			return false
		}
		stalls--
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		fmt.Fprint(w, body[:1000])
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
		return true
	}
	c := s.client(t.TempDir(), func(cfg *Config) { cfg.StallLimit = 200 * time.Millisecond })
	if m := c.mustPull(t, "hf:acme/tiny"); read(t, m.Path) != body {
		t.Error("the file differs")
	}
	<-ended
	if len(c.warnings) == 0 || !strings.Contains(c.warnings[0], "stalled") {
		t.Errorf("warnings %q", c.warnings)
	}
}
