// Package supervise keeps one child process running.
//
// Goal: a child that dies is started again at once, and a child that keeps dying
// is started again after longer and longer waits. No child outlives its parent: the
// kernel kills it when the parent's supervising thread is gone (Linux), and it ends
// itself when its standard input closes (EndWithParent). A child has a process
// group of its own, so that Ctrl-C in the terminal reaches only the parent, which
// then stops the child in the right order.
//
// Not a goal: to know what the child does. Its client reports, by Alive, that it
// works. A child that has worked and then makes no progress for a while is killed
// as hung. Reason tells why the child does not serve.
//
// Ownership: Run starts the child and waits for its end. All other methods may be
// called from any goroutine.
//
//	s := supervise.New(cfg, supervise.Child{Path: exe, Name: "app", Args: args, Output: os.Stderr, Log: log})
//	err := s.Run(ctx) // until ctx is done and the child has ended
package supervise
