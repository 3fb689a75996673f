package gateway

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// fault is a way in which a request can fail. The list is closed; the table
// below says what follows from each.
type fault uint8

const (
	faultInternal fault = iota
	faultInvalid
	faultContextLength
	faultModelNotFound
	faultPathNotFound
	faultClassNotFound
	faultMethod
	faultMediaType
	faultBodyTooLarge
	faultHeaderTooLarge
	faultRequestTimeout
	faultTransferCoding
	faultExpectation
	faultOrigin
	faultUnauthorized
	faultForbidden
	faultIssuer
	faultTooLarge
	faultQueueFull
	faultQueueTimeout
	faultLate
	faultRevoked
	faultDeadline
	faultOverloaded
	faultRetryBudget
	faultClassClosed
	faultRateLimit
	faultQuota
	faultOverBudget
	faultLimiter
	faultConnections
	faultUnavailable
	faultDevice
	faultLoading
	faultEngine
	faultNonFinite
	faultGrammar
	faultDraining
	faultClientGone
	faultWriteStall
)

// faults maps a fault to its HTTP status, the type and code of the error
// object, and the outcome. Status 499 occurs in records only.
var faults = [...]struct {
	status  int
	typ     string
	code    string
	outcome telemetry.Outcome
}{
	faultInternal:       {500, "server_error", "internal_error", telemetry.Internal},
	faultInvalid:        {400, "invalid_request_error", "invalid_value", telemetry.Invalid},
	faultContextLength:  {400, "invalid_request_error", "context_length_exceeded", telemetry.ContextLength},
	faultModelNotFound:  {404, "invalid_request_error", "model_not_found", telemetry.NotFound},
	faultPathNotFound:   {404, "invalid_request_error", "unknown_url", telemetry.NotFound},
	faultClassNotFound:  {404, "invalid_request_error", "class_not_found", telemetry.NotFound},
	faultMethod:         {405, "invalid_request_error", "method_not_allowed", telemetry.Invalid},
	faultMediaType:      {415, "invalid_request_error", "unsupported_media_type", telemetry.Invalid},
	faultBodyTooLarge:   {413, "invalid_request_error", "request_too_large", telemetry.TooLarge},
	faultHeaderTooLarge: {431, "invalid_request_error", "header_too_large", telemetry.TooLarge},
	faultRequestTimeout: {408, "invalid_request_error", "request_timeout", telemetry.ClientGone},
	faultTransferCoding: {501, "invalid_request_error", "unsupported_transfer_coding", telemetry.Invalid},
	faultExpectation:    {417, "invalid_request_error", "expectation_failed", telemetry.Invalid},
	faultOrigin:         {403, "invalid_request_error", "origin_not_allowed", telemetry.Invalid},
	faultTooLarge:       {400, "invalid_request_error", "request_cannot_fit", telemetry.TooLarge},
	faultUnauthorized:   {401, "invalid_request_error", "invalid_api_key", telemetry.Unauthorized},
	faultForbidden:      {403, "invalid_request_error", "not_allowed", telemetry.Forbidden},
	faultIssuer:         {503, "server_error", "issuer_unavailable", telemetry.IssuerUnavailable},
	faultQueueFull:      {503, "server_error", "queue_full", telemetry.QueueFull},
	faultQueueTimeout:   {503, "server_error", "queue_timeout", telemetry.QueueTimeout},
	faultLate:           {503, "server_error", "would_be_late", telemetry.Late},
	faultRevoked:        {503, "server_error", "no_longer_in_time", telemetry.Revoked},
	faultDeadline:       {504, "server_error", "deadline_exceeded", telemetry.DeadlineExceeded},
	faultOverloaded:     {503, "server_error", "overloaded", telemetry.Overloaded},
	faultRetryBudget:    {503, "server_error", "too_many_retries", telemetry.Overloaded},
	faultClassClosed:    {503, "server_error", "class_closed", telemetry.ClassClosed},
	faultRateLimit:      {429, "rate_limit_error", "rate_limit_exceeded", telemetry.RateLimited},
	faultQuota:          {429, "rate_limit_error", "insufficient_quota", telemetry.RateLimited},
	faultOverBudget:     {400, "invalid_request_error", "request_exceeds_limit", telemetry.TooLarge},
	faultLimiter:        {503, "server_error", "limiter_unavailable", telemetry.LimiterUnavailable},
	faultConnections:    {503, "server_error", "too_many_connections", telemetry.QueueFull},
	faultLoading:        {503, "server_error", "model_loading", telemetry.EngineUnavailable},
	faultUnavailable:    {503, "server_error", "engine_unavailable", telemetry.EngineUnavailable},
	faultDevice:         {503, "server_error", "device_failed", telemetry.EngineUnavailable},
	faultEngine:         {500, "server_error", "engine_error", telemetry.EngineError},
	faultNonFinite:      {500, "server_error", "non_finite_output", telemetry.NonFinite},
	faultGrammar:        {400, "invalid_request_error", "grammar_failed", telemetry.GrammarFailed},
	faultDraining:       {503, "server_error", "draining", telemetry.Draining},
	faultClientGone:     {499, "server_error", "client_gone", telemetry.ClientGone},
	faultWriteStall:     {499, "server_error", "write_stall", telemetry.WriteStall},
}

var faultOfKind = map[wire.Kind]fault{
	wire.Internal:      faultEngine,
	wire.Invalid:       faultInvalid,
	wire.ContextLength: faultContextLength,
	wire.TooLarge:      faultTooLarge,
	wire.Overloaded:    faultQueueFull,
	wire.Unavailable:   faultUnavailable,
	wire.DeviceFailed:  faultDevice,
	wire.Loading:       faultLoading,
	wire.Canceled:      faultEngine, // our own cancels never come back as errors
	wire.Protocol:      faultEngine,
	wire.NonFinite:     faultNonFinite,
	wire.Draining:      faultDraining,
	wire.GrammarFailed: faultGrammar,
}

var faultOfReason = map[admission.Reason]fault{
	admission.TooLarge:     faultTooLarge,
	admission.QueueFull:    faultQueueFull,
	admission.TimedOut:     faultQueueTimeout,
	admission.Late:         faultLate,
	admission.Revoked:      faultRevoked,
	admission.PastDeadline: faultDeadline,
	admission.Overloaded:   faultOverloaded,
	admission.RetryBudget:  faultRetryBudget,
	admission.ClassClosed:  faultClassClosed,
}

// failure is an error on its way to the client.
type failure struct {
	fault      fault
	param      string
	message    string
	retryAfter time.Duration
	exact      bool          // retryAfter is not spread
	reason     string        // of admission or the budgets, from a closed list, or ""
	waited     string        // the reason for the wait before it, where that says more; else ""
	predicted  time.Duration // the predicted wait, 0 for none
	allow      string        // methods, for faultMethod
	kernel     string        // in which the GPU failed, or ""
	detail     string        // for the log alone
}

func (f *failure) Error() string { return faults[f.fault].code + ": " + f.message }

func failed(f fault, message string) *failure { return &failure{fault: f, message: message} }

// asFailure turns any error into a failure. The text of an unexpected error goes
// to the log alone; clients see only that something went wrong.
func asFailure(err error) *failure {
	var f *failure
	var refusal *admission.Refusal
	var e *wire.Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, httpd.ErrGone):
		return errClientGone
	case errors.Is(err, httpd.ErrStalled):
		return errWriteStall
	case errors.As(err, &refusal):
		f := &failure{fault: faultOfReason[refusal.Reason], message: refusal.Message, retryAfter: refusal.RetryAfter, reason: refusal.Reason.String(), predicted: refusal.Predicted}
		if refusal.Why != admission.WhyNot {
			f.waited = refusal.Why.String()
		}
		return f
	case errors.As(err, &e):
		f := &failure{fault: faultOfKind[e.Kind], param: e.Param, message: e.Message, retryAfter: e.RetryAfter, kernel: e.Kernel}
		if f.fault == faultEngine {
			f.detail, f.message = e.Error(), "the engine failed; the request id finds the reason in the log"
		}
		return f
	}
	return &failure{fault: faultInternal, message: "something went wrong on our side; the request id finds it in the log", detail: err.Error()}
}

const detailBytesMax = 256

// noteFailure keeps f in the record. The client's message is kept for failures
// of our own only: one about a bad request may quote the request.
func noteFailure(r *telemetry.Record, f *failure) {
	row := &faults[f.fault]
	r.Outcome, r.ErrorKind, r.Status, r.Param = row.outcome, row.code, row.status, f.param
	r.Kernel = f.kernel
	r.ErrorText = f.detail
	if r.ErrorText == "" && row.status >= 500 {
		r.ErrorText = f.message
	}
	r.ErrorText = strings.ToValidUTF8(clip(r.ErrorText, detailBytesMax), "")
}

// failureOf is asFailure, with the wait that the engine asks for.
func (g *Gateway) failureOf(err error) *failure {
	f := asFailure(err)
	if why := g.engine.State().Err; f.fault == faultUnavailable && why != nil && why.RetryAfter > f.retryAfter {
		longer := *f
		longer.retryAfter = why.RetryAfter
		return &longer
	}
	return f
}

// retryAfterDefault is the wait where none was predicted.
const retryAfterDefault = time.Second

// retry says how long the client should wait before it tries again, 0 where
// trying again would not help, and what the answer says about it: "true",
// "false", or "" where the client's own rules decide.
func (f *failure) retry() (wait time.Duration, should string) {
	switch status := faults[f.fault].status; {
	case status == 429 || status == 503:
		wait, should = f.retryAfter, "true"
		if wait <= 0 {
			wait = retryAfterDefault
		}
		if !f.exact {
			wait = spread(wait)
		}
		if f.fault == faultQuota { // hours away
			should = "false"
		}
		return wait, should
	case status < 500, status == 504, f.fault == faultNonFinite, f.fault == faultTransferCoding:
		return 0, "false"
	}
	return 0, ""
}

// appendErrorObject appends {"error":{…}}.
func (f *failure) appendErrorObject(b []byte) []byte {
	row := &faults[f.fault]
	b = append(b, `{"error":{"message":`...)
	b = appendString(b, f.message)
	b = append(b, `,"type":"`...)
	b = append(b, row.typ...)
	b = append(b, `","param":`...)
	if f.param == "" {
		b = append(b, `null`...)
	} else {
		b = appendString(b, f.param)
	}
	b = append(b, `,"code":"`...)
	b = append(b, row.code...)
	b = append(b, '"')
	if f.reason != "" {
		b = append(b, `,"reason":"`...)
		b = append(b, f.reason...)
		b = append(b, '"')
	}
	if f.predicted > 0 {
		b = append(b, `,"predicted_wait_ms":`...)
		b = strconv.AppendInt(b, f.predicted.Milliseconds(), 10)
	}
	return append(b, `}}`...)
}

// secondsUp is d in whole seconds, rounded up.
func secondsUp(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// spread adds up to a quarter to a wait, so that refused clients do not all
// come back at the same moment.
func spread(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/4+1))
}
