package usage

import "time"

// Config says where the lines go.
type Config struct {
	File         string        `yaml:"file" help:"File that gets a JSON line for each request that ran, for billing; empty writes none."`
	FileBytesMax int           `yaml:"file_bytes_max" default:"67108864" range:"4KiB..16GiB" help:"Size at which the file is full: it gets the number of its last line in its name, and a new one begins."`
	FilesMax     int           `yaml:"files_max" default:"1000" range:"1..1000000" help:"Full files that are kept; beyond it the oldest is removed, which the log and a metric tell."`
	Sync         string        `yaml:"sync" default:"interval" oneof:"interval line never" help:"When lines are made to survive a crash of the machine (fsync): interval, at most each sync_interval; line, before the next line is taken up; never leaves it to the kernel. A crash of this process alone loses no line that was written."`
	SyncInterval time.Duration `yaml:"sync_interval" default:"1s" range:"10ms..10m" help:"Longest time between a line and its fsync, with sync: interval."`
	QueueMax     int           `yaml:"queue_max" default:"65536" range:"16..16777216" help:"Lines that wait in memory while the disk is slow, full or away; further ones are lost, which the log and a metric tell, and leave their numbers out."`
	FlushLimit   time.Duration `yaml:"flush_limit" default:"5s" range:"10ms..10m" help:"Longest time to write the waiting lines at a stop."`
}
