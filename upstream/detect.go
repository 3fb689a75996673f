package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
)

// model is what a server says of itself and of the model that it serves.
type model struct {
	dialect   *dialect
	prefix    string // of the paths of the API: /v1 but for one dialect
	version   string // of the server, or ""
	name      string // at the server
	created   int64
	context   int // tokens, 0 for not said
	sequences int // that it computes at once, 0 for not said
}

// listed is an entry of the list of models.
type listed struct {
	ID          string `json:"id"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len"`
	Meta        struct {
		Context int `json:"n_ctx"`
	} `json:"meta"`
}

// detect asks the server what it is, and which model it has.
func (s *server) detect(ctx context.Context) (*model, error) {
	m := &model{prefix: "/v1"}
	var list struct {
		Data []listed `json:"data"`
	}
	err := s.ask(ctx, "GET", "/v1/models", nil, &list)
	if status := (*errStatus)(nil); errors.As(err, &status) && status.status == http.StatusNotFound {
		m.prefix = "/v3" // of OpenVINO Model Server
		err = s.ask(ctx, "GET", "/v3/models", nil, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("GET %s/models: %w", m.prefix, err)
	}
	chosen, err := s.choose(list.Data)
	if err != nil {
		return nil, err
	}
	m.name, m.created, m.context = chosen.ID, chosen.Created, cmp.Or(chosen.MaxModelLen, chosen.Meta.Context)
	if m.dialect = dialectNamed(s.cfg.Dialect); m.dialect == nil {
		m.dialect = s.kind(ctx, m, chosen)
	}
	s.details(ctx, m)
	m.sequences = cmp.Or(m.sequences, m.dialect.sequences)
	return m, nil
}

// choose returns the model that is asked for, or else the first.
func (s *server) choose(all []listed) (*listed, error) {
	if len(all) == 0 {
		return nil, errors.New("it lists no model yet")
	}
	if s.cfg.Model == "" {
		return &all[0], nil
	}
	var names []string
	for i := range all {
		if all[i].ID == s.cfg.Model {
			return &all[i], nil
		}
		names = append(names, all[i].ID)
	}
	return nil, fmt.Errorf("it has no model %q (upstream.model); it has %s", s.cfg.Model, brief(strings.Join(names, ", ")))
}

// kind says which dialect the server speaks: by who owns its model, or else by a page
// that only one kind of server has.
func (s *server) kind(ctx context.Context, m *model, chosen *listed) *dialect {
	for _, d := range dialects {
		if slices.Contains(d.owners, chosen.OwnedBy) {
			return d
		}
	}
	var page struct {
		Name     string `json:"name"`
		Version  string `json:"version"`
		Router   string `json:"router"`
		Requests int    `json:"max_concurrent_requests"`
	}
	if m.prefix == "/v3" {
		return dialectNamed("openvino")
	}
	if s.ask(ctx, "GET", "/info", nil, &page) == nil && (page.Requests > 0 || page.Router != "") {
		return dialectNamed("tgi")
	}
	if s.ask(ctx, "GET", "/api/version", nil, &page) == nil && page.Version != "" {
		return dialectNamed("ollama")
	}
	return generic
}

// details asks what only servers of m's dialect answer. What is not answered stays
// unknown.
func (s *server) details(ctx context.Context, m *model) {
	ask := func(path string, to any) bool { return s.ask(ctx, "GET", path, nil, to) == nil }
	var page struct {
		Version       string `json:"version"`
		Build         string `json:"build_info"`
		Slots         int    `json:"total_slots"`
		Requests      int    `json:"max_running_requests"`
		ContextTokens int    `json:"context_length"`
		InputAndMore  int    `json:"max_total_tokens"`
		Defaults      struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
		Loaded []struct {
			Name    string `json:"name"`
			Context int    `json:"context_length"`
		} `json:"models"`
	}
	switch m.dialect.name {
	case "vllm", "tensorrt-llm", "forebay":
		ask("/version", &page)
	case "sglang":
		if !ask("/server_info", &page) {
			ask("/get_server_info", &page)
		}
		m.sequences, m.context = page.Requests, cmp.Or(page.ContextTokens, m.context)
	case "llama-server":
		ask("/props", &page)
		m.sequences, m.context = page.Slots, cmp.Or(page.Defaults.Context, m.context)
	case "tgi":
		ask("/info", &page)
		m.context = cmp.Or(page.InputAndMore, m.context)
	case "ollama":
		ask("/api/version", &page)
		ask("/api/ps", &page)
		for _, l := range page.Loaded {
			if l.Name == m.name {
				m.context = cmp.Or(l.Context, m.context)
			}
		}
	case "openvino":
		ask("/v2", &page)
	}
	m.version = cmp.Or(page.Version, page.Build)
}

// publicName is the name of a model for clients: without the folders that a server
// which was given a file names it by.
func publicName(name string) string {
	if strings.HasSuffix(name, ".gguf") || strings.HasPrefix(name, "/") {
		return strings.TrimSuffix(path.Base(name), ".gguf")
	}
	return name
}

// countTokens asks the server how many tokens the request's prompt has, and which, where
// it says so.
func (s *server) countTokens(ctx context.Context, m *model, r *relayed) (n int, tokens []int32, err error) {
	path := m.dialect.countText
	if r.chat {
		path = m.dialect.countChat
	}
	if path == "" {
		return 0, nil, errors.ErrUnsupported
	}
	body := append([]byte("{"), r.members...)
	if !r.chat { // llama-server names the text otherwise, and others ignore that name
		body = append(append(body, `,"add_special":true,"content":`...), r.prompt...)
	}
	body = appendMember(append(body, ','), "model", quote(m.name))
	var answer struct {
		Count       int             `json:"count"`
		InputTokens int             `json:"input_tokens"`
		Tokens      json.RawMessage `json:"tokens"`
	}
	// A byte of a prompt is at most a token, and that is a number of seven digits.
	if err := s.askLong(ctx, "POST", path, append(body, '}'), &answer, s.cfg.MessageBytesMax+9*len(body)); err != nil {
		return 0, nil, err
	}
	var other []json.RawMessage
	if json.Unmarshal(answer.Tokens, &tokens) != nil {
		tokens = nil
		json.Unmarshal(answer.Tokens, &other)
	}
	if n = cmp.Or(max(0, answer.Count), max(0, answer.InputTokens), len(tokens), len(other)); n == 0 {
		return 0, nil, errors.New("its answer has no count")
	}
	if n != len(tokens) {
		tokens = nil
	}
	return n, tokens, nil
}
