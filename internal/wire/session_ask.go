package wire

import (
	"context"
	"time"
)

// Requests of a session that have one reply: prepares and captures.

func (s *session) prepare(ctx context.Context, r *Request) (*Prompt, error) {
	if ctx.Err() != nil {
		return nil, abandoned()
	}
	got, err := ask(ctx, s, s.prepares, framePrepare, appendRequest(nil, r))
	switch {
	case err != nil:
		return nil, err
	case got == nil:
		return nil, abandoned()
	}
	return got.Prompt, asError(got.Err)
}

// capture asks the engine for the launches of its next steps.
func (s *session) capture(ctx context.Context, steps int, limit time.Duration) (*Capture, error) {
	got, err := ask(ctx, s, s.captures, frameCapture, appendDuration(appendSize(nil, steps), limit))
	switch {
	case err != nil:
		return nil, err
	case got == nil:
		return nil, Errorf(Canceled, "the capture was abandoned")
	case got.Err != nil:
		return nil, got.Err
	}
	return &got.Result, nil
}

// ask sends a request and waits for its reply among those asked; the reply is
// nil where ctx ended first.
func ask[R any](ctx context.Context, s *session, asked map[uint64]chan R, kind byte, body []byte) (*R, error) {
	reply := make(chan R, 1)
	s.mu.Lock()
	id, err := s.enqueue(kind, body)
	if err == nil {
		asked[id] = reply
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case got := <-reply:
		return &got, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := asked[id]; ok && s.err == nil {
		s.out = appendIDFrame(s.out, frameAbandon, id)
		s.kick()
	}
	return nil, nil
}

func abandoned() *Error {
	return Errorf(Canceled, "the request was abandoned while its prompt was prepared")
}

// answer hands r to whoever of asked waits for it.
func answer[R any](s *session, asked map[uint64]chan R, id uint64, r R) *Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply, ok := asked[id]
	if !ok {
		return Errorf(Protocol, "a reply to request %d, which was not asked", id)
	}
	delete(asked, id)
	reply <- r
	return nil
}
