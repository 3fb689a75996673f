//go:build !amd64 || purego

package model

import "time"

var ticksOrigin = time.Now()

// ticks is a clock that is cheap to read and goes on evenly.
func ticks() int64 { return int64(time.Since(ticksOrigin)) }
