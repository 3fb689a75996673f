package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
)

// model is what a server says of itself and of the model that it serves.
type model struct {
	dialect   *dialect
	version   string // of the server, or ""
	name      string // at the server
	created   int64
	context   int // tokens, 0 for not said
	sequences int // that it computes at once, 0 for not said
}

// listed is an entry of GET /v1/models.
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
	var list struct {
		Data []listed `json:"data"`
	}
	if err := s.ask(ctx, "GET", "/v1/models", nil, &list); err != nil {
		return nil, fmt.Errorf("GET /v1/models: %w", err)
	}
	if len(list.Data) == 0 {
		return nil, errors.New("it lists no model yet")
	}
	chosen := list.Data[0]
	if want := s.cfg.Model; want != "" {
		var names []string
		chosen.ID = ""
		for _, m := range list.Data {
			names = append(names, m.ID)
			if m.ID == want {
				chosen = m
			}
		}
		if chosen.ID == "" {
			return nil, fmt.Errorf("it has no model %q (upstream.model); it has %s", want, brief(strings.Join(names, ", ")))
		}
	}
	m := &model{name: chosen.ID, created: chosen.Created, context: cmp.Or(chosen.MaxModelLen, chosen.Meta.Context), dialect: dialects[s.cfg.Dialect]}
	if m.dialect == nil {
		m.dialect = s.kind(ctx, &chosen)
	}
	s.details(ctx, m)
	return m, nil
}

// kind says which dialect the server speaks, by who owns its model.
func (s *server) kind(ctx context.Context, m *listed) *dialect {
	switch m.OwnedBy {
	case "vllm":
		return dialects["vllm"]
	case "llamacpp":
		return dialects["llama-server"]
	}
	return generic
}

// details asks what only servers of m's dialect answer. What is not answered stays
// unknown.
func (s *server) details(ctx context.Context, m *model) {
	switch m.dialect.name {
	case "vllm":
		var v struct {
			Version string `json:"version"`
		}
		if s.ask(ctx, "GET", "/version", nil, &v) == nil {
			m.version = v.Version
		}
	case "llama-server":
		var props struct {
			Slots    int    `json:"total_slots"`
			Build    string `json:"build_info"`
			Defaults struct {
				Context int `json:"n_ctx"`
			} `json:"default_generation_settings"`
		}
		if s.ask(ctx, "GET", "/props", nil, &props) == nil {
			m.version, m.sequences = props.Build, props.Slots
			m.context = cmp.Or(props.Defaults.Context, m.context)
		}
	}
}

// publicName is the name of a model for clients: without the folders that a server
// which was given a file names it by.
func publicName(name string) string {
	if strings.HasSuffix(name, ".gguf") || strings.HasPrefix(name, "/") {
		return strings.TrimSuffix(path.Base(name), ".gguf")
	}
	return name
}

// countTokens asks the server how many tokens the request's prompt has.
func (s *server) countTokens(ctx context.Context, m *model, r *relayed) (int, error) {
	path := m.dialect.countText
	if r.chat {
		path = m.dialect.countChat
	}
	if path == "" {
		return 0, errors.ErrUnsupported
	}
	body := append([]byte("{"), r.members...)
	if path == "/tokenize" && !r.chat { // llama-server names the text otherwise, and vLLM ignores that name
		body = append(append(body, `,"add_special":true,"content":`...), r.prompt...)
	}
	body = appendMember(append(body, ','), "model", quote(m.name))
	var answer struct {
		Count       *int              `json:"count"`
		InputTokens *int              `json:"input_tokens"`
		Tokens      []json.RawMessage `json:"tokens"`
	}
	if err := s.ask(ctx, "POST", path, append(body, '}'), &answer); err != nil {
		return 0, err
	}
	n := cmp.Or(answer.Count, answer.InputTokens)
	switch {
	case n != nil && *n > 0:
		return *n, nil
	case len(answer.Tokens) > 0:
		return len(answer.Tokens), nil
	}
	return 0, errors.New("its answer has no count")
}
