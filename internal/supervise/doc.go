// Package supervise keeps one child process running.
//
// Goal: a child that dies is back at once, one that keeps dying is tried ever
// more slowly, and no child outlives its parent: the kernel kills it when the
// parent's supervising thread is gone (Linux), and it ends itself when its
// standard input closes (EndWithParent). A child has its own process group, so
// that a Ctrl-C in the terminal reaches the parent alone, which then stops the
// child in its own order.
//
// Not a goal: knowing what the child does. Whether it works is for its client to
// say, by Alive; a child that was seen to work and then is not for a while is
// killed as hung. Reason tells why it does not serve.
//
//	s := supervise.New(cfg, supervise.Child{Path: exe, Name: "app", Args: args, Output: os.Stderr, Log: log})
//	err := s.Run(ctx) // until ctx is done and the child has ended
package supervise
