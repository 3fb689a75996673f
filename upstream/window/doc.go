// Package window decides how much work another server should have at once, so that
// its own queue stays empty and its batch full.
//
// Goal: a server with a queue serves it in its own order. What is kept out of that
// queue can still be ordered here. So the server is given as many sequences as it
// computes, and as much prefill as its next step has room for. Where it says how many
// sequences it computes, that is the size; else the size is learned.
//
// What was sent and has not ended is known exactly, and is what decides. Numbers that
// the server publishes are late, and only correct the size: a number that does not
// come changes nothing.
//
// # Laws
//
// A first token should come after the delay of the connection and the prefill of what
// was sent before it and of itself. Excess is what it took longer. Delay and the time
// of a token are the least that was seen, and rise only slowly.
//
//	size := size · 0.9   where the median excess of 8 first tokens, a round, is over
//	                     max(10 ms, 2 steps)
//	size := size + 1     where it is not for 4 rounds in which all places were in use; taken
//	                     back, and held for a while, where the server did not become faster
//	size := size - n     where the server says that n > 1 requests wait, or refuses one
//	size := size + 1     where it says that none waits, all of ours run, and all places are in use
//
// A round takes no more off than leaves the requests that had their first token and not
// their end at the same time in the last seconds: so many the server computes at once.
// First tokens that come late all the same waited for something else, such as a busy
// machine between.
//
// Until the size was too large once and then was not, a round takes a fifth off or adds a
// quarter.
//
// After a change the server's numbers are not believed for a hold, since they may be
// from before it.
//
// Sequences of others are what the server says that it runs, less what is ours. Their
// moving mean is taken off the places. Where places change hands so often that the delay
// costs a hundredth of the work, one more request may wait at the server, within the
// bound of the operator or of the dialect.
//
// Non-goals: which request goes first (admission), how the numbers are fetched
// (upstream).
//
// Everything is pure: time is an argument. A Window belongs to one goroutine at a time.
package window
