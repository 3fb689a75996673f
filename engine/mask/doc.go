// Package mask says which tokens may come next under a grammar: it knows the
// bytes of a tokenizer's tokens, and engine/grammar the bytes that may follow.
//
// A Trie is made once a tokenizer, a Compiled once a grammar and tokenizer, a
// Matcher once an answer. A Matcher belongs to one goroutine; matchers of one
// Compiled may be used at the same time and share what they learn.
//
// # Promises
//
//   - A token is allowed if its bytes may follow, whole or in part of what
//     comes after. A control token is never read as its text: it is allowed
//     where the grammar has Builder.Token of it, and an end token also where
//     the grammar may end.
//   - After an error the answer has to end with it: it is never free text.
//   - A mask does not depend on what is remembered, nor on other matchers.
//   - Mask and Accept allocate nothing once their states have been met.
//
// # How a mask is made
//
// Most of a vocabulary is safe: it may stand in a JSON string as it is, and a
// pattern's dot takes it. Where the grammar takes any n safe characters, the safe tokens of at most n come
// from a ready mask, and only the rest are walked along the trie. The finished
// mask is remembered by the grammar's state.
package mask
