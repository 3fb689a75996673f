package gateway

import (
	"bytes"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/internal/wire"
)

// Request headers that a client may send.
const (
	classHeader    = "X-Forebay-Class"
	deadlineHeader = "X-Forebay-Deadline-Ms"
	// retryCountHeader counts the retries of OpenAI's clients, from 0.
	retryCountHeader = "X-Stainless-Retry-Count"
)

// classNone is the class in records of requests without a class.
const classNone = "none"

// apiKeyHeader has a key as Anthropic's clients send it.
const apiKeyHeader = "X-Api-Key"

// certificateHeader is what a proxy says of its client's certificate.
const certificateHeader = "X-Forwarded-Client-Cert"

// presented is what the request says of its sender.
func presented(c httpd.Request) identity.Presented {
	p := identity.Presented{Certificate: c.Header(certificateHeader)}
	if len(p.Certificate) > 0 {
		// Several headers are one list, of which the last element counts.
		all := c.Headers(certificateHeader)
		p.Certificate = all[len(all)-1]
		switch peer := c.RemoteAddr().(type) {
		case *net.TCPAddr:
			p.Peer = peer.AddrPort().Addr()
		case *net.UnixAddr:
			p.Socket = true
		}
	}
	if certificate := c.Certificate(); certificate != nil {
		p.Verified = certificate.URIs
	}
	p.Several = len(c.Headers("Authorization")) > 1 || len(c.Headers(apiKeyHeader)) > 1
	if scheme, key, _ := bytes.Cut(c.Header("Authorization"), []byte(" ")); bytes.EqualFold(scheme, []byte("Bearer")) {
		p.Bearer = bytes.TrimSpace(key)
	}
	switch other := bytes.TrimSpace(c.Header(apiKeyHeader)); {
	case len(other) == 0:
	case len(p.Bearer) == 0:
		p.Bearer = other
	case !bytes.Equal(other, p.Bearer):
		p.Several = true
	}
	return p
}

// callerOf is who sends the request, or why it is nobody. Routes that need no key
// have no caller.
func (g *Gateway) callerOf(c httpd.Request, r *route) (*identity.Caller, *identity.Refusal) {
	if r != nil && r.open {
		return nil, nil
	}
	p := presented(c)
	return g.identity.Identify(&p, time.Now())
}

// recorded is who a record is about: the caller, or whose key it was.
func recorded(caller *identity.Caller, why *identity.Refusal) *identity.Caller {
	if why != nil {
		return why.Caller
	}
	return caller
}

// authorize refuses a request that is nobody's, or whose key may not use the route.
func (g *Gateway) authorize(r *route, caller *identity.Caller, why *identity.Refusal) *failure {
	switch {
	case why != nil && why.Reason == identity.IssuerDown:
		g.identity.Refused(why.Reason)
		return failed(faultIssuer, why.Message)
	case why != nil:
		g.identity.Refused(why.Reason)
		return &failure{fault: faultUnauthorized, message: why.Message, detail: why.Reason.String()}
	case !caller.MayRoute(r.right()):
		return failed(faultForbidden, "this API key may not use this route")
	}
	return nil
}

// right is the name of the route in the rights of keys.
func (r *route) right() string { return rightOf(r.name) }

// rightOf is the route whose rights and group of servers hold for a route.
func rightOf(name string) string {
	switch name {
	case "model":
		return "models"
	case "count_tokens":
		return "messages"
	}
	return name
}

// identify decides the class, counts what is asked for, and starts the deadline.
func (x *exchange) identify(tenant *admission.Tenant, c *call) (*admission.Class, error) {
	class, err := x.caller.Policy.Class(tenant, admission.Wish{Name: string(x.http.Header(classHeader)), Tier: c.tier, Route: x.record.Route})
	if err != nil {
		return nil, &failure{fault: faultInvalid, param: classHeader, message: err.Error()}
	}
	x.noteClass(class)
	x.record.User = admission.UserName(tenant.Name, c.user)
	x.record.Prompts, x.record.Choices = len(c.prompts), len(c.prompts)*c.options.N
	if err := x.setDeadline(string(x.http.Header(deadlineHeader))); err != nil {
		return nil, err
	}
	x.record.Identified = wire.Monotonic()
	return class, nil
}

// deadlineMax is the longest deadline that a client may set.
const deadlineMax = 7 * 24 * time.Hour

// setDeadline starts the client's deadline for the whole request, in milliseconds
// from its arrival; "" sets none.
func (x *exchange) setDeadline(text string) error {
	if text == "" {
		return nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms > deadlineMax.Milliseconds() {
		return &failure{fault: faultInvalid, param: deadlineHeader, message: fmt.Sprintf("%s must be a whole number of milliseconds, at most %d", deadlineHeader, deadlineMax.Milliseconds())}
	}
	within := time.Duration(ms) * time.Millisecond
	left := within - x.age()
	if left <= 0 {
		return errDeadline
	}
	x.deadline = time.NewTimer(left)
	x.due = x.record.Arrived + int64(within)
	return nil
}

// age is how long ago the request came.
func (x *exchange) age() time.Duration { return time.Duration(wire.Monotonic() - x.record.Arrived) }

// within is the time from the request's arrival to its client's deadline, 0 where
// there is none.
func (x *exchange) within() time.Duration {
	if x.due == 0 {
		return 0
	}
	return time.Duration(x.due - x.record.Arrived)
}

// expired reports whether the client's deadline is over.
func (x *exchange) expired() bool { return x.due != 0 && wire.Monotonic() >= x.due }

var errDeadline = &failure{fault: faultDeadline, message: "the deadline in " + deadlineHeader + " is over", reason: admission.PastDeadline.String()}

// isRetry reports whether the client says that it has tried before.
func (x *exchange) isRetry() bool {
	n, err := strconv.Atoi(string(x.http.Header(retryCountHeader)))
	return err == nil && n > 0
}

// fit returns the class that takes the longest prompt: the same, or one that the
// policy moves long prompts to.
func (x *exchange) fit(tenant *admission.Tenant, class *admission.Class, prompts []*wire.Prompt) (*admission.Class, error) {
	longest := 0
	for _, p := range prompts {
		longest = max(longest, p.Length())
	}
	fitting, err := x.caller.Policy.Fit(tenant, class, longest)
	if err != nil {
		return nil, err
	}
	if fitting != class {
		x.record.DemotedFrom = class.Name
		x.noteClass(fitting)
	}
	return fitting, nil
}
