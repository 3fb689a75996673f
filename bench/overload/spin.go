package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
)

// spinFlag makes this program a busy loop. It is for its own use.
const spinFlag = "--spin-until-stdin-closes"

// spin keeps one processor busy until standard input ends, as it does when the
// parent is gone.
func spin() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for x := uint64(1); ; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
}

// startBusy starts so many busy loops, and returns how to end them.
func startBusy(n int) (stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var inputs []io.Closer
	var loops []*exec.Cmd
	stop = func() (err error) {
		for _, in := range inputs {
			err = errors.Join(err, in.Close())
		}
		for _, c := range loops {
			err = errors.Join(err, c.Wait())
		}
		return err
	}
	for range n {
		c := exec.Command(self, spinFlag)
		ownGroup(c)
		in, err := c.StdinPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		inputs, loops = append(inputs, in), append(loops, c)
	}
	return stop, nil
}
