package wire

import (
	"context"
	"time"
)

// The requests of a session that have one reply: prepares, launch traces and holdings.

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

// traceLaunches asks the engine for the launches of its next steps.
func (s *session) traceLaunches(ctx context.Context, steps int, limit time.Duration) (*LaunchTrace, error) {
	got, err := ask(ctx, s, s.traces, frameTrace, appendDuration(appendSize(nil, steps), limit))
	switch {
	case err != nil:
		return nil, err
	case got == nil:
		return nil, Errorf(Canceled, "the launch trace was abandoned")
	case got.Err != nil:
		return nil, got.Err
	}
	return &got.Result, nil
}

// ask sends a request, notes it in asked and waits for its reply, which is nil
// where ctx ended first.
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

// answer hands r to the caller that asked for it.
func answer[R any](s *session, asked map[uint64]chan R, id uint64, r R) *Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply, ok := asked[id]
	if !ok {
		return Errorf(Protocol, "a reply to request %d, which was not asked for", id)
	}
	delete(asked, id)
	reply <- r
	return nil
}
