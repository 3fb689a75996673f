package cache

import "slices"

// Claim is how sequences with the same prefix compute it once. Tokens are all
// that s is going to compute, from its first one. Claim first attaches what
// has become cached since. Then it says whether s should compute in this step:
//
//   - true: nobody else is computing the next block of s. If tokens hold that
//     block whole, s has now claimed it, until it is committed, s is closed,
//     or Unclaim.
//   - false: another open sequence has claimed it. Leave s out of this step
//     and call Claim again in the next: s will be attached to the block, or,
//     if the other gave up, compute it.
//
// Who holds a claim must be computing: when it is paused, or left out of a
// step for want of pages or of time, call Unclaim. A sequence that must reuse
// nothing does not claim.
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
		// A block that s has begun it finishes, and one that s could not
		// attach for holding its last token it has to compute.
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

// claimant is the sequence that has claimed the block with these tokens at a
// place. There are as many claims as sequences in prefill, so a walk will do.
func (p *Pool) claimant(at cursor, hash uint64, tokens []int32) *Seq {
	for _, s := range p.claims {
		if s.claimHash == hash && p.tip(s) == at && slices.Equal(s.claimBlock, tokens) {
			return s
		}
	}
	return nil
}
