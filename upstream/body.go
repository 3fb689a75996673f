package upstream

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/upstream/kvevents"
)

// relayed is a prepared request: what Generate sends.
type relayed struct {
	chat    bool
	members []byte           // the client's, without those below; "a":1,"b":2
	prompt  json.RawMessage  // of a text request, also among members
	limit   string           // the name of the member that limits tokens
	limited bool             // the client gave it
	seeded  bool             // the client gave a seed
	tools   json.RawMessage  // of a chat
	counted int              // its tokens by upstream.tokenizer, 0 for not counted
	traits  traits           // of the prompt; zero where it was not estimated
	blocks  []uint64         // hashes of its beginnings
	bytes   int              // of what they are of
	chains  []kvevents.Chain // the same by its tokens, where these are known
}

// replaced are the members that every generation has of ours.
var replaced = []string{"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "seed", "n"}

// newRelayed takes the client's body apart.
func newRelayed(r *wire.Request) (*relayed, *wire.Error) {
	all := map[string]json.RawMessage{}
	if r.Body == nil { // only the prompt was given
		if r.Messages != nil {
			all["messages"] = r.Messages
		}
	} else if !eachMember(r.Body, func(name string, value json.RawMessage) bool { all[name] = value; return true }) {
		return nil, wire.Errorf(wire.Invalid, "the body is not a JSON object")
	}
	v := &relayed{chat: r.Messages != nil, limit: "max_tokens"}
	if given(all["max_completion_tokens"]) {
		v.limit = "max_completion_tokens"
	}
	v.tools = all["tools"]
	v.limited, v.seeded = given(all[v.limit]), given(all["seed"])
	for _, list := range [...][]string{replaced, reserved} {
		for _, name := range list {
			delete(all, name)
		}
	}
	whole := []byte(r.Messages)
	switch {
	case v.chat:
	case r.Text != nil:
		v.prompt = quote(*r.Text)
		all["prompt"] = v.prompt
	default:
		v.prompt, _ = json.Marshal(r.Tokens)
		all["prompt"] = v.prompt
	}
	if !v.chat {
		whole = v.prompt
	}
	v.blocks, v.bytes = blocksOf(r.Salt, whole), len(whole)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(v.members) > 0 {
			v.members = append(v.members, ',')
		}
		v.members = appendMember(v.members, name, all[name])
	}
	return v, nil
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// sentLimit is the limit of tokens that is sent for g, if one is. Where nobody limits
// the answer, its end is the server's business, which knows the prompt's length to the
// token.
func (v *relayed) sentLimit(g *wire.Generation) (tokens int, sent bool) {
	n := g.Options.MaxTokens
	return n, n > 0 && (v.limited || n < g.Prompt.Room)
}

// body is what is sent for g.
func (v *relayed) body(g *wire.Generation, m *model, cfg *Config) []byte {
	b := make([]byte, 0, len(v.members)+len(m.name)+512)
	b = append(append(b, '{'), v.members...) // which hold the prompt at least
	b = appendMember(append(b, ','), "model", quote(m.name))
	b = m.dialect.ownMembers(append(b, `,"stream":true`...), g.ID, g.Salt, g.Level, cfg.Priority)
	if cfg.PromptCacheOff && m.dialect.name == "llama-server" {
		b = append(b, `,"cache_prompt":false`...)
	}
	if n, sent := v.sentLimit(g); sent {
		b = strconv.AppendInt(append(append(append(b, `,"`...), v.limit...), `":`...), int64(n), 10)
	}
	if n := g.Options.N; n > 1 {
		b = strconv.AppendInt(append(b, `,"n":`...), int64(n), 10)
	}
	if v.seeded {
		b = strconv.AppendUint(append(b, `,"seed":`...), g.Options.Seed&(1<<63-1), 10)
	}
	return append(b, '}')
}
