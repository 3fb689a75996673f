//go:build cuda

package gpu

import (
	"fmt"
	"runtime"

	"github.com/forebay-io/forebay/internal/cudrv"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// This file copies pages between the device and the host.

// SavePage implements model.Placed.
func (p *placed) SavePage(dst []byte, page int32) error {
	err := p.movePage(page, len(dst), p.device.GetLater)
	if err != nil {
		return fmt.Errorf("copy page %d to the host: %w", page, err)
	}
	copy(dst, p.page)
	return nil
}

// LoadPage implements model.Placed.
func (p *placed) LoadPage(page int32, src []byte) error {
	if err := p.pinPage(len(src)); err != nil {
		return err
	}
	copy(p.page, src)
	err := p.movePage(page, len(src), func(piece []byte, at cuda.Address) error { return p.device.PutLater(at, piece) })
	if err != nil {
		return fmt.Errorf("copy page %d from the host: %w", page, err)
	}
	return nil
}

// pinPage takes pinned memory for a page.
func (p *placed) pinPage(bytes int) (err error) {
	if p.page == nil {
		p.page, err = cudrv.Pin(bytes)
	}
	return err
}

// movePage calls move for the keys and the values of every layer, with their part of the pinned
// memory, and waits.
func (p *placed) movePage(page int32, bytes int, move func(piece []byte, at cuda.Address) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.device.Bind(); err != nil {
		return err
	}
	if err := p.pinPage(bytes); err != nil {
		return err
	}
	from := 0
	for i := range p.pools {
		layout := p.layout(i)
		size := layout.PageBytes()
		if size == 0 {
			continue
		}
		for _, pages := range []cuda.Address{p.pools[i].keys, p.pools[i].values} {
			if err := move(p.page[from:from+size], pages+cuda.Address(int(page)*size)); err != nil {
				return err
			}
			from += size
		}
	}
	return p.device.Wait()
}
