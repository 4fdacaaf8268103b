package cluster

import "context"

// crashpointTag is the build tag with which the driver can be told where to die.
const crashpointTag = "crashpoints"

// CrashpointDriver makes the image of a driver that can be told where to die, gives it to
// the nodes, and returns the Helm values with which the chart takes it.
func (c *Cluster) CrashpointDriver(ctx context.Context, progress func(format string, args ...any)) (map[string]any, error) {
	b, err := newBuilder(c.Options.Kubernetes.Minor, progress)
	if err != nil {
		return nil, err
	}
	program, err := b.own(ctx, ".", "azuredisk", crashpointTag)
	if err != nil {
		return nil, err
	}
	image, err := b.store.Driver(ctx, program)
	if err != nil {
		return nil, err
	}
	progress("loading %s, which has crash points", image.Ref)
	if err := c.LoadImage(ctx, image.Tar); err != nil {
		return nil, err
	}
	repository, tag := splitRef(image)
	return map[string]any{"image": map[string]any{"repository": repository, "tag": tag, "pullPolicy": "Never"}}, nil
}
