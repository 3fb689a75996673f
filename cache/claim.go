package cache

import "slices"

// Claim makes sequences with the same prefix compute it only once. Tokens are all
// tokens that s is going to compute, from its first one. Claim first attaches the
// blocks that have become cached since. Then it says whether s should compute in
// this step:
//
//   - true: no other sequence is computing the next block of s. If tokens hold all
//     of that block, s has now claimed it, until the block is committed, s is
//     closed, or Unclaim.
//   - false: another open sequence has claimed the block. Leave s out of this step
//     and call Claim again in the next one: then s is attached to the block, or
//     computes it where the other sequence has given up.
//
// The owner of a claim must be computing: when it is paused, or left out of a step
// because pages or time are short, call Unclaim. A sequence that must reuse nothing
// does not claim.
func (p *Pool) Claim(s *Seq, tokens []int32) bool {
	p.mustBeOpen(s, "Claim")
	if s.claimed {
		return true
	}
	p.attach(s, tokens)
	i := s.len / p.pageTokens
	if (i+1)*p.pageTokens > len(tokens) {
		return true
	}
	next := tokens[i*p.pageTokens : (i+1)*p.pageTokens]
	hash := p.hasher.next(s.hash, next)
	if p.claimant(p.tip(s), hash, next) != nil {
		// s finishes a block that it has begun. It also computes the block of
		// its last token, which is never attached.
		return s.len%p.pageTokens != 0 || i >= p.reusable(len(tokens))
	}
	s.claimed, s.claimHash = true, hash
	copy(s.claimBlock, next)
	p.claims = append(p.claims, s)
	return true
}

// Unclaim lets another sequence compute the block that s has claimed.
func (p *Pool) Unclaim(s *Seq) {
	if !s.claimed {
		return
	}
	s.claimed = false
	i := slices.Index(p.claims, s)
	last := len(p.claims) - 1
	p.claims[i] = p.claims[last]
	p.claims = slices.Delete(p.claims, last, last+1)
}

// claimant is the sequence that has claimed the block with these tokens at this
// place. There are only as many claims as sequences in prefill, so it looks at all.
func (p *Pool) claimant(at cursor, hash uint64, tokens []int32) *Seq {
	for _, s := range p.claims {
		if s.claimHash == hash && p.tip(s) == at && slices.Equal(s.claimBlock, tokens) {
			return s
		}
	}
	return nil
}
