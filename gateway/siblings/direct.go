package siblings

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// This file is how siblings are found without Redis: at the addresses of a list, each
// of which is asked for its news.

// NewsPath is where a replica tells what it holds and how loaded it is.
const NewsPath = "/siblings/news"

// anyone is who a question is signed for: who answers at an address is not known before.
const anyone = "*"

// dnsPrefix begins an entry of siblings.peers that stands for all addresses of a name.
const dnsPrefix = "dns:"

// finder finds the addresses of siblings.peers.
type finder struct {
	peers  []string
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
	log    *slog.Logger

	mu   sync.Mutex
	last map[string][]string // of each name, as it was found last
}

// addresses are those of all peers. A name that is not found now has its last addresses.
func (f *finder) addresses(ctx context.Context) (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, peer := range f.peers {
		name, isName := strings.CutPrefix(peer, dnsPrefix)
		if !isName {
			all = append(all, peer)
			continue
		}
		host, port, _ := net.SplitHostPort(name) // it was checked
		found, err := f.lookup(ctx, "ip", host)
		if err != nil && ctx.Err() == nil {
			f.log.Warn("siblings: a name of siblings.peers is not found; its last addresses are used", "name", host, "error", err)
		}
		if err == nil {
			f.last[name] = f.last[name][:0]
			for _, ip := range found {
				f.last[name] = append(f.last[name], net.JoinHostPort(ip.Unmap().String(), port))
			}
		}
		all = append(all, f.last[name]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkPeers finds what is wrong in siblings.peers.
func checkPeers(peers []string) (errs []error) {
	for _, peer := range peers {
		host, port, err := net.SplitHostPort(strings.TrimPrefix(peer, dnsPrefix))
		if err != nil || host == "" || port == "" || port == "0" {
			errs = append(errs, fmt.Errorf("siblings.peers: %q is not HOST:PORT, such as 10.0.0.7:8082, nor dns:NAME:PORT", peer))
		}
	}
	return errs
}

// ask asks the replica at an address for its news.
func (g *Group) ask(ctx context.Context, address string, question []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.scheme+"://"+address+NewsPath, bytes.NewReader(question))
	if err != nil {
		return nil, err
	}
	signature := sign(g.fleet.Secret(), NewsPath, anyone, question, time.Now())
	r.Header.Set(FormatHeader, Format)
	r.Header.Set(SignatureHeader, signature)
	resp, err := g.news.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, errorBytesMax))
		return nil, fmt.Errorf("status %d, %s", resp.StatusCode, bytes.TrimSpace(text))
	}
	most := newsLeast + newsOfBlock*int64(g.cfg.BlocksMax)
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(body)) > most:
		return nil, errors.New("it tells of more blocks than siblings.blocks_max")
	}
	// Signed for our question alone: an answer cannot be given twice, nor by who has no secret.
	if err := verify(g.fleet.Secret(), resp.Header.Get(SignatureHeader), NewsPath, signature, body, time.Now()); err != nil {
		return nil, fmt.Errorf("its answer: %w", err)
	}
	return body, nil
}

// The most bytes of an answer: newsOfBlock for each block, and newsLeast for all else.
const (
	newsLeast   = 2 << 20
	newsOfBlock = 9
)

// News answers a sibling's question, with the signature of the answer.
func (g *Group) News(signature, format string, question []byte) (answer []byte, signed string, err error) {
	if !g.direct {
		return nil, "", errors.New("this replica tells its news through Redis (siblings.store), not to those who ask")
	}
	if err := g.checkFormat(format); err != nil {
		return nil, "", err
	}
	now := time.Now()
	if err := verify(g.fleet.Secret(), signature, NewsPath, anyone, question, now); err != nil {
		return nil, "", err
	}
	if answer, err = g.fleet.Answer(question); err != nil {
		return nil, "", err
	}
	return answer, sign(g.fleet.Secret(), NewsPath, signature, answer, now), nil
}
