package control

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const apiToken = "0123456789abcdef0123456789abcdef"

// startAPI is a control plane with its API.
func startAPI(t *testing.T, cfg Config, files map[string]string) (*plane, *httptest.Server) {
	t.Helper()
	cfg.API, cfg.APITokenFile = "127.0.0.1:0", filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(cfg.APITokenFile, []byte(apiToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startPlane(t, cfg, files)
	server := httptest.NewServer(p.API())
	t.Cleanup(server.Close)
	return p, server
}

// call asks the API; header is KEY=VALUE pairs.
func call(t *testing.T, server *httptest.Server, method, path, body string, header ...string) (status int, text string, tag string) {
	t.Helper()
	r, err := http.NewRequest(method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+apiToken)
	for _, one := range header {
		key, value, _ := strings.Cut(one, "=")
		r.Header.Set(key, value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(all), response.Header.Get("ETag")
}

const twoTenant = "admission: {tenants: [{name: beta}]}\n"

// TestAPI: files are written, read, listed and deleted; what was written is served, and has
// the version that was told.
func TestAPI(t *testing.T) {
	p, server := startAPI(t, Config{}, map[string]string{"a.yaml": oneTenant})
	status, text, tag := call(t, server, "PUT", "/v1/files/teams/b.yaml", twoTenant, "If-None-Match=*")
	var answer struct{ Version string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 || tag == "" || answer.Version == p.Version() {
		t.Fatalf("%d %s, tag %s", status, text, tag)
	}
	p.look()
	if p.Version() != answer.Version {
		t.Errorf("%s is served, and %s was told", p.Version(), answer.Version)
	}
	if status, text, got := call(t, server, "GET", "/v1/files/teams/b.yaml", ""); status != 200 || text != twoTenant || got != tag {
		t.Errorf("%d %s, tag %s", status, text, got)
	}
	var page struct {
		Files  []fileNote
		Served string `json:"served_version"`
	}
	_, text, _ = call(t, server, "GET", "/v1/files", "")
	if err := json.Unmarshal([]byte(text), &page); err != nil || len(page.Files) != 2 || page.Files[1] != (fileNote{"teams/b.yaml", len(twoTenant), tag}) || page.Served != answer.Version {
		t.Errorf("the list is %s", text)
	}
	if status, text, _ := call(t, server, "DELETE", "/v1/files/teams/b.yaml", "", "If-Match="+tag); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	p.look()
	if list := p.trial.stable.List(); len(list) != 1 || list[0].Name != "a.yaml" {
		t.Errorf("%v are served", list)
	}
	if left, _ := filepath.Glob(filepath.Join(p.dir, "teams", ".*")); len(left) > 0 {
		t.Errorf("%v stayed", left)
	}
}

// TestAPIRefuses: what is wrong changes no file, and is told with what to change.
func TestAPIRefuses(t *testing.T) {
	p, server := startAPI(t, Config{BytesMax: 1024, FilesMax: 2}, map[string]string{"a.yaml": oneTenant})
	outside := filepath.Join(t.TempDir(), "outside.yaml")
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(p.dir, "away")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, body, header string
		status                     int
		want                       string
	}{
		{"PUT", "/v1/files/a.yaml", oneTenant, "Authorization=Bearer wrong", 401, "api_token_file"},
		{"GET", "/v1/files", "", "Authorization=" + apiToken, 401, "must be Bearer"},
		{"PUT", "/v1/files/b.yaml", "admission:\n  tenants: [{name: b, weight: 900}]", "", 422, "b.yaml:2: admission.tenants[0].weight: 900 is out of range"},
		{"PUT", "/v1/files/b.yaml", oneTenant, "", 422, "has the name"},
		{"PUT", "/v1/files/b.yaml", "mesh: {routes: [{name: r, cluster: c}]}", "", 422, "there is no cluster"},
		{"PUT", "/v1/files/b.yaml", strings.Repeat("#", 2000), "", 413, "total_bytes_max, 1024"},
		{"PUT", "/v1/files/b.yaml", strings.Repeat("#", 1000), "", 422, "total_bytes_max allows 1024"},
		{"PUT", "/v1/files/b.txt", oneTenant, "", 400, "is not the path of a policy file"},
		{"PUT", "/v1/files/.b.yaml", oneTenant, "", 400, "may begin with a dot"},
		{"PUT", "/v1/files/%2e%2e%2fb.yaml", oneTenant, "", 400, "is not the path"},
		{"PUT", "/v1/files/%2fetc%2fb.yaml", oneTenant, "", 400, "is not the path"},
		{"PUT", "/v1/files/away/outside.yaml", twoTenant, "", 500, "the folder was not changed"},
		{"PUT", "/v1/files/a.yaml", twoTenant, `If-Match="other"`, 412, "read it again"},
		{"PUT", "/v1/files/a.yaml", twoTenant, "If-None-Match=*", 412, "such a file already"},
		{"DELETE", "/v1/files/a.yaml", "", "", 422, "it is the last file"},
		{"DELETE", "/v1/files/c.yaml", "", "", 404, "there is no file"},
		{"GET", "/v1/files/c.yaml", "", "", 404, "there is no file"},
		{"POST", "/v1/files/a.yaml", twoTenant, "", 405, "Method Not Allowed"},
		{"PUT", "/v1/files/a.yaml?dry_run=true", twoTenant, "", 200, "version"},
	} {
		header := []string{}
		if c.header != "" {
			header = append(header, c.header)
		}
		if status, text, _ := call(t, server, c.method, c.path, c.body, header...); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, status, text, c.status, c.want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(p.dir, "a.yaml")); err != nil || string(text) != oneTenant {
		t.Errorf("a.yaml is now %s, %v", text, err)
	}
	if names, _, err := list(p.dir, 10); err != nil || len(names) != 1 {
		t.Errorf("the folder holds %v, %v", names, err)
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("a file outside the folder was written")
	}
}

// TestAPIWritersMeet: of writers who read the same file one wins, and the others are told.
func TestAPIWritersMeet(t *testing.T) {
	_, server := startAPI(t, Config{APIRequestsMax: 100}, map[string]string{"a.yaml": oneTenant})
	_, _, tag := call(t, server, "GET", "/v1/files/a.yaml", "")
	var mu sync.Mutex
	var writing sync.WaitGroup
	counts := map[int]int{}
	for i := range 8 {
		writing.Go(func() {
			status, _, _ := call(t, server, "PUT", "/v1/files/a.yaml", oneTenant+strings.Repeat("#", i+1), "If-Match="+tag)
			mu.Lock()
			defer mu.Unlock()
			counts[status]++
		})
	}
	writing.Wait()
	if counts[200] != 1 || counts[412] != 7 {
		t.Errorf("the answers are %v", counts)
	}
}

// TestAPISettings: an API that everybody could use, or listen to, does not start.
func TestAPISettings(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	os.WriteFile(short, []byte("secret"), 0o600)
	os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(oneTenant), 0o600)
	for want, cfg := range map[string]Config{
		"needs api_token_file":                        {API: "127.0.0.1:1"},
		"api: 0.0.0.0:1 needs tls_cert":               {API: "0.0.0.0:1", APITokenFile: short},
		"api: :1 needs tls_cert":                      {API: ":1", APITokenFile: short},
		"is not an address such as":                   {API: "1", APITokenFile: short},
		"the token has 6 bytes; give it 16 at least":  {API: "[::1]:1", APITokenFile: short},
		"api_token_file: stat /nowhere: no such file": {API: "localhost:1", APITokenFile: "/nowhere"},
	} {
		cfg.Dir = dir
		if _, err := New(context.Background(), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestAPIPlaces: requests over the limit are told to come again.
func TestAPIPlaces(t *testing.T) {
	p, _ := startAPI(t, Config{APIRequestsMax: 1}, map[string]string{"a.yaml": oneTenant})
	handler := p.API()
	body, write := io.Pipe()
	ended := make(chan int)
	ask := func(method string, body io.Reader) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "/v1/files/a.yaml", body)
		r.Header.Set("Authorization", "Bearer "+apiToken)
		handler.ServeHTTP(w, r)
		return w.Code
	}
	go func() { ended <- ask("PUT", body) }()
	write.Write([]byte(oneTenant)) // it is being read: the place is taken
	if got := ask("GET", nil); got != http.StatusServiceUnavailable {
		t.Errorf("the second request got %d", got)
	}
	write.Close()
	if got := <-ended; got != 200 {
		t.Errorf("the first request got %d", got)
	}
	if got := ask("GET", nil); got != 200 {
		t.Errorf("the third request got %d", got)
	}
}
