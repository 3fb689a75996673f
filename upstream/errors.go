package upstream

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// refusal says what an answer of another status than 200 means for the client. What
// only the operator can mend is not told as the client's mistake.
func refusal(e *errStatus) *wire.Error {
	text := messageOf(e.body)
	switch s := e.status; {
	case s == http.StatusBadRequest || s == http.StatusUnprocessableEntity:
		return invalid(e.body, text)
	case s == http.StatusRequestEntityTooLarge:
		return wire.Errorf(wire.TooLarge, "the upstream refuses the request as too large: %s", text)
	case s == http.StatusUnauthorized || s == http.StatusForbidden:
		return wire.Errorf(wire.Unavailable, "the upstream does not accept this gateway's key; its operator must set upstream.key_file")
	case s == http.StatusNotFound:
		return wire.Errorf(wire.Unavailable, "the upstream does not have this route or model any more")
	case s == http.StatusTooManyRequests || s == http.StatusServiceUnavailable:
		return &wire.Error{Kind: wire.Overloaded, Message: "the upstream takes no more requests now; try again", RetryAfter: retryAfter(e.header)}
	case s == http.StatusBadGateway || s == http.StatusGatewayTimeout:
		return wire.Errorf(wire.Unavailable, "what is before the upstream answers with status %d", s)
	case s >= 300 && s < 400:
		return wire.Errorf(wire.Unavailable, "the upstream sends to another address (status %d), which is not followed; its operator must correct upstream.url", s)
	}
	return wire.Errorf(wire.Internal, "the upstream failed with status %d: %s", e.status, text)
}

// invalid is the error for a request that the server finds wrong.
func invalid(body []byte, text string) *wire.Error {
	var answer struct {
		Error struct {
			Param any    `json:"param"`
			Code  any    `json:"code"`
			Type  string `json:"type"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &answer) // another shape has neither
	param, _ := answer.Error.Param.(string)
	code, _ := answer.Error.Code.(string)
	e := &wire.Error{Kind: wire.Invalid, Param: param, Message: "the upstream refuses the request: " + text}
	low := strings.ToLower(text)
	if code == "context_length_exceeded" || answer.Error.Type == "exceed_context_size_error" || strings.Contains(low, "context length") || strings.Contains(low, "context size") || strings.Contains(low, "maximum context") {
		e.Kind = wire.ContextLength
	}
	return e
}

// retryAfter is the wait that a server asks for in seconds, 0 for none.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 || n > 24*3600 {
		return 0
	}
	return time.Duration(n) * time.Second
}
