package usage

import (
	"encoding/json"
	"math"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
)

// Line is what one request used.
type Line struct {
	// Seq counts up by one from line to line, over files and restarts.
	Seq      uint64    `json:"seq"`
	ID       string    `json:"id"` // unique
	ClientID string    `json:"client_id,omitempty"`
	Ended    time.Time `json:"ended"` // UTC
	Tenant   string    `json:"tenant"`
	Key      string    `json:"key,omitempty"`
	User     string    `json:"user,omitempty"` // a hash of the end user's name
	Model    string    `json:"model"`
	Class    string    `json:"class"`
	Route    string    `json:"route"`
	Outcome  string    `json:"outcome"`
	// PromptTokens is the length of the prompts; of these CachedTokens were found in
	// the cache and ComputedTokens computed, all of them unless it ended early.
	PromptTokens     int `json:"prompt_tokens"`
	CachedTokens     int `json:"cached_tokens"`
	ComputedTokens   int `json:"computed_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	ReasoningTokens  int `json:"reasoning_tokens"` // a part of CompletionTokens
	// Charged is false for a request that costs nothing, since the engine failed
	// before its first token. Cost is what it costs by budget.prices.
	Charged bool    `json:"charged"`
	Cost    float64 `json:"cost"`
}

// appendLine appends r's line.
func appendLine(b []byte, seq uint64, r *telemetry.Record, ended time.Time) []byte {
	text, err := json.Marshal(&Line{
		Seq: seq, ID: r.ID, ClientID: r.ClientID, Ended: ended.UTC().Round(time.Millisecond), Tenant: r.Tenant, Key: r.Key, User: r.User,
		Model: r.Model, Class: r.Class, Route: r.Route, Outcome: r.Outcome.String(),
		PromptTokens: r.PromptTokens, CachedTokens: r.CachedTokens, ComputedTokens: r.ComputedTokens, CompletionTokens: r.CompletionTokens, ReasoningTokens: r.ReasoningTokens,
		Charged: !r.Refunded, Cost: math.Round(r.Cost*1e12) / 1e12, // without the noise of sums
	})
	if err != nil {
		panic("usage: a line does not marshal: " + err.Error()) // it has numbers and texts alone
	}
	return append(append(b, text...), '\n')
}
