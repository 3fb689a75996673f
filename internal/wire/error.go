package wire

import (
	"errors"
	"fmt"
	"time"
)

// Kind classifies an Error. The list is closed; the gateway maps each kind to
// an HTTP status in one table.
type Kind uint8

const (
	Internal      Kind = iota // our own fault
	Invalid                   // the request is wrong: Param names the field, Message what is allowed
	ContextLength             // prompt, or prompt and output, exceed the model's context
	TooLarge                  // the request can never fit into the page pool, or a message into a frame
	Overloaded                // no room now; try again after RetryAfter
	Unavailable               // the engine is starting, gone, or gave up; try again after RetryAfter
	Canceled                  // the reader has closed the stream or given up its request
	Protocol                  // the peer broke the framing; the connection is closed
	NonFinite                 // the model gave NaN or infinity
	Draining                  // the engine is stopping and takes nothing new
	GrammarFailed             // the answer's grammar takes too much to follow, or leaves no token
	DeviceFailed              // the GPU failed and the engine starts again; Kernel says where, if it is known
	Loading                   // there is no engine yet, since its model is being downloaded; try again after RetryAfter
)

var kindNames = [...]string{"internal", "invalid", "context_length", "too_large", "overloaded", "unavailable", "canceled", "protocol", "non_finite", "draining", "grammar_failed", "device_failed", "loading"}

// String returns the kind's stable name, as used in metric labels and logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind%d", uint8(k))
}

// Error is a failure that crosses the contract.
type Error struct {
	Kind Kind `json:"kind"`
	// Param is the request field at fault, in the client API's names, or "".
	Param string `json:"param,omitempty"`
	// Message says what is wrong and what to change, in words for the client.
	Message    string        `json:"message"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	Kernel     string        `json:"kernel,omitempty"`
}

func (e *Error) Error() string { return e.Kind.String() + ": " + e.Message }

// Errorf builds an Error without a Param.
func Errorf(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// InvalidParam builds an Invalid error for one request field.
func InvalidParam(param, format string, args ...any) *Error {
	return &Error{Kind: Invalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

// AsError returns err as an *Error, wrapping a foreign one as Internal.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Errorf(Internal, "%v", err)
}
