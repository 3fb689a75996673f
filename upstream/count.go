package upstream

import (
	"context"
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file estimates how many tokens a prompt has at a server that does not say, or
// that would take too long to ask. The estimate is linear in the bytes of each class
// of characters, since tokenizers treat them alike: a token of English has about four
// letters, one of digits one to three, one of a script beyond Latin about one
// character. The usage of every answer teaches the coefficients (recursive least
// squares of the relative error), and how far the estimates are off.

// traits are what an estimate is made of.
type traits [traitCount]float64

const (
	traitBase    = iota // of every prompt
	traitMessage        // messages of a chat
	traitLetters        // bytes of ASCII letters
	traitDigits
	traitSigns // bytes of ASCII signs and spaces
	traitTwo   // characters of two bytes: Latin with accents, Greek, Cyrillic, Hebrew, Arabic
	traitThree // characters of three bytes: Indian scripts, Chinese, Japanese, Korean
	traitFour
	traitMedia // images and other data in the request

	traitCount
)

// firstRates are the tokens of each trait before anything was learned.
var firstRates = traits{8, 5, 0.24, 0.55, 0.2, 0.6, 0.9, 2, 600}

const (
	ratioWindow  = 256  // answers that the error is known from
	ratioSure    = 16   // answers until the estimates count as learned
	rateVariance = 0.25 // relative variance of a rate that is unknown
	rateForget   = 0.995
	noise        = 0.01 // relative variance of a prompt's count
)

// counter learns to count. Its methods may be called from any goroutine.
type counter struct {
	mu         sync.Mutex
	rates      traits
	covariance [traitCount][traitCount]float64 // of rates relative to firstRates
	ratios     [ratioWindow]float64            // of the last counts to their estimates
	ratioHigh  float64                         // their 90 % quantile
	learned    int
}

func newCounter() *counter {
	c := &counter{rates: firstRates}
	for i := range c.covariance {
		c.covariance[i][i] = rateVariance
	}
	return c
}

// estimate is the count that t makes likely.
func (c *counter) estimate(t *traits) float64 {
	n := 0.
	for i, x := range t {
		n += c.rates[i] * x
	}
	return max(1, n)
}

// high is the count that 9 prompts in 10 like t do not exceed, as far as is known.
func (c *counter) high(t *traits) (tokens int, sure bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	factor := 1.3
	if c.learned >= ratioSure {
		factor = c.ratioHigh
	}
	return int(math.Ceil(c.estimate(t) * max(1, factor))), c.learned >= ratioSure
}

// sure tells that enough was learned for estimates to be used.
func (c *counter) sure() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.learned >= ratioSure
}

// middle is the count that is as likely too high as too low.
func (c *counter) middle(t *traits) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.estimate(t))
}

// quantile is the 90 % quantile of the ratio of counts to their estimates.
func (c *counter) quantile() float64 {
	n := min(c.learned, ratioWindow)
	var sorted [ratioWindow]float64
	copy(sorted[:], c.ratios[:n])
	slices.Sort(sorted[:n])
	return sorted[min(n-1, n*9/10)]
}

// observe learns from a prompt whose count is known now.
func (c *counter) observe(t *traits, tokens int) {
	if tokens < 1 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	expected := c.estimate(t)
	c.ratios[c.learned%ratioWindow] = float64(tokens) / expected
	c.learned++
	c.ratioHigh = c.quantile()

	// One step of recursive least squares. Both sides are divided by the estimate, so
	// that a long prompt teaches no more than a short one.
	var x, gain traits
	for i := range t {
		x[i] = firstRates[i] * t[i] / expected
	}
	spread := noise
	for i := range gain {
		for j := range x {
			gain[i] += c.covariance[i][j] * x[j]
		}
		spread += x[i] * gain[i]
	}
	off := float64(tokens)/expected - 1
	for i := range gain {
		c.rates[i] = max(0, c.rates[i]+firstRates[i]*gain[i]/spread*off)
		for j := range gain {
			p := (c.covariance[i][j] - gain[i]*gain[j]/spread) / rateForget
			if i == j {
				p = min(p, rateVariance)
			}
			c.covariance[i][j] = p
		}
	}
}

// learn takes in the count of a prompt whose answer is whole.
func (c *counter) learn(p *wire.Prompt, a *answer) {
	if v, ok := p.Relayed.(*relayed); ok && a.usage != nil && v.traits != (traits{}) {
		c.observe(&v.traits, a.usage.Prompt)
	}
}

// count says how many tokens the prompt has, and whether the server said so. Prompts
// of token ids need nobody.
func (r *replica) count(ctx context.Context, m *model, asked *wire.Request, v *relayed) (tokens int, exact bool) {
	if asked.Tokens != nil {
		r.engine.chain(v, asked.Tokens, asked.Salt)
		return len(asked.Tokens), true
	}
	bytes := len(asked.Messages) + len(v.tools)
	if asked.Text != nil {
		v.traits.text([]byte(*asked.Text))
		v.traits[traitBase], bytes = 1, len(*asked.Text)
	} else {
		v.traits.json(asked.Messages)
		v.traits.json(v.tools)
		v.traits[traitBase] = 1
	}
	if n, ok := r.countHere(ctx, m, asked, v); ok {
		return n, true
	}
	n, sure := r.engine.counts.high(&v.traits)
	if sure && bytes < r.cfg.CountBytesMin {
		return n, false
	}
	limited, cancel := context.WithTimeout(ctx, r.cfg.CountLimit)
	defer cancel()
	if said, tokens, err := r.server.countTokens(limited, m, v); err == nil {
		r.engine.chain(v, tokens, asked.Salt)
		return said, true
	}
	return n, false
}

// text adds plain text.
func (t *traits) text(b []byte) {
	for len(b) > 0 {
		c := b[0]
		if c < utf8.RuneSelf {
			t.ascii(c)
			b = b[1:]
			continue
		}
		_, size := utf8.DecodeRune(b)
		t.wide(size)
		b = b[size:]
	}
}

func (t *traits) ascii(c byte) {
	switch {
	case 'a' <= c|0x20 && c|0x20 <= 'z':
		t[traitLetters]++
	case '0' <= c && c <= '9':
		t[traitDigits]++
	default:
		t[traitSigns]++
	}
}

func (t *traits) wide(size int) {
	switch size {
	case 2:
		t[traitTwo]++
	case 3:
		t[traitThree]++
	default:
		t[traitFour]++
	}
}

// json adds the strings in valid JSON: names of members only count as the start of a
// message, where they say so.
func (t *traits) json(b []byte) {
	for i := 0; i < len(b); i++ {
		if b[i] != '"' {
			continue
		}
		var own traits
		text := b[i+1:]
		n := own.quoted(text)
		i += 1 + n
		rest := i + 1
		for rest < len(b) && (b[rest] == ' ' || b[rest] == '\n' || b[rest] == '\t' || b[rest] == '\r') {
			rest++
		}
		switch {
		case rest < len(b) && b[rest] == ':':
			if string(text[:n]) == "role" {
				t[traitMessage]++
			}
		case n > 5 && string(text[:5]) == "data:":
			t[traitMedia]++
		default:
			for k := range t {
				t[k] += own[k]
			}
		}
	}
}

// quoted adds the characters of a JSON string that begins after its quote, and
// returns how many bytes it has before the closing one.
func (t *traits) quoted(b []byte) int {
	for i := 0; i < len(b); {
		c := b[i]
		switch {
		case c == '"':
			return i
		case c == '\\' && i+5 < len(b) && b[i+1] == 'u':
			t.wide(escapedSize(b[i+2 : i+6]))
			i += 6
		case c == '\\':
			t[traitSigns]++
			i += 2
		case c < utf8.RuneSelf:
			t.ascii(c)
			i++
		default:
			_, size := utf8.DecodeRune(b[i:])
			t.wide(size)
			i += size
		}
	}
	return len(b)
}

// escapedSize is the bytes in UTF-8 of a character that is written by four
// hexadecimal digits. Half of a pair counts as one of three.
func escapedSize(digits []byte) int {
	if digits[0] == '0' && digits[1] <= '7' {
		return 2
	}
	return 3
}
