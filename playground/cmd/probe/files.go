package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// hold does nothing until it is told to end.
func hold(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	<-ctx.Done()
	return nil
}

// put replaces a file and returns when it is on the disk.
func put(path, text string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		return err
	}
	return file.Sync()
}

func cat(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(data)
	return err
}

// size prints the bytes of a device, or of the filesystem that a path is on.
func size(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeDevice == 0 {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(path, &fs); err != nil {
			return err
		}
		fmt.Println(int64(fs.Blocks) * fs.Bsize)
		return nil
	}
	device, err := os.Open(path)
	if err != nil {
		return err
	}
	defer device.Close()
	end, err := device.Seek(0, io.SeekEnd)
	fmt.Println(end)
	return err
}

// show prints mode, owner and group of a path.
func show(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	fmt.Printf("%s owner %d group %d\n", info.Mode(), owner.Uid, owner.Gid)
	return nil
}
