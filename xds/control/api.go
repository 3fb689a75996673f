package control

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/forebay-io/forebay/internal/conf"
)

// This file is the control plane's own API: it lists, reads, writes and deletes the files
// of the folder. The folder stays the one place where policy is, so that what was written
// is there after a restart, and a change by hand is seen too.

// api answers requests for files.
type api struct {
	s       *Server
	writing sync.Mutex    // held from the check of a change until it is written
	places  chan struct{} // has room for those that may be answered at a time
}

// API is the handler of the control plane's own API.
func (s *Server) API() http.Handler {
	a := &api{s: s, places: make(chan struct{}, s.cfg.APIRequestsMax)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/files", a.list)
	mux.HandleFunc("GET /v1/files/{name...}", a.get)
	mux.HandleFunc("PUT /v1/files/{name...}", a.put)
	mux.HandleFunc("DELETE /v1/files/{name...}", a.delete)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case a.places <- struct{}{}:
			defer func() { <-a.places }()
		default:
			fail(w, http.StatusServiceUnavailable, fmt.Errorf("api_requests_max, %d, requests are being answered; try again", s.cfg.APIRequestsMax))
			return
		}
		switch ok, err := s.allowed(r.Header.Get("Authorization")); {
		case err != nil:
			s.log.Error("control: the token of the API cannot be read", "error", err)
			fail(w, http.StatusInternalServerError, errors.New("the token of the API cannot be read; see the log of the control plane"))
		case !ok:
			w.Header().Set("WWW-Authenticate", "Bearer")
			fail(w, http.StatusUnauthorized, errors.New("the header Authorization must be Bearer and the token in api_token_file"))
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// tokenBytesMin is the shortest token that is taken: a shorter one could be guessed.
const tokenBytesMin = 16

// token is the API's token, as its file has it now.
func (c *Config) token() ([]byte, error) {
	const most = 4096
	text, err := readAtMost(c.APITokenFile, most)
	if text = bytes.TrimSpace(text); err == nil && len(text) < tokenBytesMin {
		err = fmt.Errorf("%s: the token has %d bytes; give it %d at least, as from openssl rand -hex 16", c.APITokenFile, len(text), tokenBytesMin)
	}
	return text, err
}

func (s *Server) allowed(authorization string) (bool, error) {
	token, err := s.cfg.token()
	given, ok := strings.CutPrefix(authorization, "Bearer ")
	return err == nil && ok && subtle.ConstantTimeCompare([]byte(given), token) == 1, err
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// fail says what is wrong, a mistake in a line each.
func fail(w http.ResponseWriter, status int, err error) {
	reply(w, status, map[string]any{"error": err.Error()})
}

// tagOf names the content of a file.
func tagOf(text []byte) string {
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// fileNote is a file in a list.
type fileNote struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	Tag   string `json:"etag"`
}

func (a *api) list(w http.ResponseWriter, _ *http.Request) {
	files, err := gather(a.s.cfg.Dir, a.s.cfg.FilesMax, a.s.cfg.BytesMax)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	list := []fileNote{}
	for _, f := range files {
		list = append(list, fileNote{f.Name, len(f.Text), tagOf(f.Text)})
	}
	served, wrong := a.s.served()
	reply(w, http.StatusOK, map[string]any{"files": list, "served_version": served, "error": wrong})
}

// served is the version that is served, and why the files as they are now are not.
func (s *Server) served() (version, wrong string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trial.version(), s.wrong
}

func (a *api) get(w http.ResponseWriter, r *http.Request) {
	files, err := gather(a.s.cfg.Dir, a.s.cfg.FilesMax, a.s.cfg.BytesMax)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	name := r.PathValue("name")
	at := slices.IndexFunc(files, func(f conf.File) bool { return f.Name == name })
	if at < 0 {
		fail(w, http.StatusNotFound, fmt.Errorf("there is no file %q", name))
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("ETag", tagOf(files[at].Text))
	w.Write(files[at].Text)
}

func (a *api) put(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(a.s.cfg.BytesMax)))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		fail(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the file has more than total_bytes_max, %d, bytes", a.s.cfg.BytesMax))
	case err != nil:
		fail(w, http.StatusBadRequest, err)
	default:
		a.change(w, r, text)
	}
}

func (a *api) delete(w http.ResponseWriter, r *http.Request) { a.change(w, r, nil) }

// change writes a file, or deletes it where text is nil, if the policy is right with it.
func (a *api) change(w http.ResponseWriter, r *http.Request, text []byte) {
	name := r.PathValue("name")
	if err := checkName(name); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	files, err := gather(a.s.cfg.Dir, a.s.cfg.FilesMax, a.s.cfg.BytesMax)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	at := slices.IndexFunc(files, func(f conf.File) bool { return f.Name == name })
	had := ""
	if at >= 0 {
		had = tagOf(files[at].Text)
		files = slices.Delete(files, at, at+1)
	}
	switch match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match"); {
	case match != "" && match != had && (match != "*" || had == ""):
		fail(w, http.StatusPreconditionFailed, fmt.Errorf("the file is now %s: read it again", had))
		return
	case none == "*" && had != "":
		fail(w, http.StatusPreconditionFailed, errors.New("there is such a file already"))
		return
	case text == nil && had == "":
		fail(w, http.StatusNotFound, fmt.Errorf("there is no file %q", name))
		return
	}
	if text != nil {
		files = append(files, conf.File{Name: name, Text: text})
	}
	version, err := a.s.check(files)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, err)
		return
	}
	if r.URL.Query().Get("dry_run") != "true" {
		if err := a.s.store(name, text); err != nil {
			fail(w, http.StatusInternalServerError, fmt.Errorf("the folder was not changed: %w", err))
			return
		}
		a.s.log.Info("control: a file was changed by the API", "file", name, "deleted", text == nil, "version", version, "from", r.RemoteAddr)
	}
	if text != nil {
		w.Header().Set("ETag", tagOf(text))
	}
	reply(w, http.StatusOK, map[string]any{"version": version})
}

// check says which version files have, or what is wrong with them.
func (s *Server) check(files []conf.File) (version string, err error) {
	total := 0
	for _, f := range files {
		total += len(f.Text)
	}
	switch {
	case len(files) == 0:
		return "", errors.New("it is the last file, and without any the gateways would keep the last policy that they took")
	case len(files) > s.cfg.FilesMax:
		return "", fmt.Errorf("there would be more than files_max, %d, policy files", s.cfg.FilesMax)
	case total > s.cfg.BytesMax:
		return "", fmt.Errorf("the policy files would have %d bytes, and total_bytes_max allows %d", total, s.cfg.BytesMax)
	}
	slices.SortFunc(files, func(a, b conf.File) int { return strings.Compare(a.Name, b.Name) })
	all, err := parse(files)
	if err != nil {
		return "", err
	}
	sets, err := Build(all)
	if err != nil {
		return "", err
	}
	return sets.Version, nil
}

// checkName refuses what no policy file is called.
func checkName(name string) error {
	const most = 255
	ext := path.Ext(name)
	if name == "" || len(name) > most || !fs.ValidPath(name) || ext != ".yaml" && ext != ".yml" ||
		slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return strings.HasPrefix(part, ".") }) {
		return fmt.Errorf("%q is not the path of a policy file, such as tenants.yaml or teams/a.yaml; no part of it may begin with a dot", clip(name))
	}
	return nil
}

// store writes a file of the folder, whole or not at all, or deletes it where text is nil.
func (s *Server) store(name string, text []byte) error {
	root, err := os.OpenRoot(s.cfg.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if text == nil {
		return root.Remove(name)
	}
	if err := root.MkdirAll(path.Dir(name), 0o750); err != nil {
		return err
	}
	part := path.Join(path.Dir(name), ".put-"+rand.Text()) // hidden files are no policy
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	defer root.Remove(part)
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return root.Rename(part, name)
}
