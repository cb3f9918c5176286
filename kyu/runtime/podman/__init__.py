"""
Pods as containers of podman, from images. The engine is podman's; pods, logs and commands stay those of the runtime.

The supervisor of a pod runs ``podman run`` where it would run the program itself, inside of the pod's namespaces. All
state of the engine lies in the pod's folder, and the images of the machine are only read. So a pod needs no service,
it ends with its supervisor as any other, and nothing of it is left when its folder is removed.

    images.py   finds podman on this machine, and gets images; called by the server
    plan.py     turns a container of a Pod into the arguments of podman
    entering.py gives the engine its place in the namespaces of the pod; part of the supervisor
    engine.py   the command lines of podman, and the processes of its containers; part of the supervisor
"""
