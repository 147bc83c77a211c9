// A small application that edits itself: a core with Lua in it, a folder of assets, a frame or a window, and a control
// socket that evaluates Lua.
//
//   lantern RUN              serve RUN/control.sock until SIGTERM; RUN/up says that it is up
//   lantern --ask RUN CODE   let the lantern that serves RUN evaluate CODE, and print what it says
//   lantern --run CODE       evaluate CODE here
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <lua.hpp>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>
#ifdef LANTERN_WINDOW
#include <SDL.h>
#endif

namespace {

volatile std::sig_atomic_t ended = 0;
constexpr int WIDTH = 32, HEIGHT = 24;

std::string assets()
{
    const char *named = std::getenv("LANTERN_ASSETS");
    return named ? named : "assets";
}

std::string evaluate(lua_State *lua, const std::string &code)
{
    bool failed = luaL_dostring(lua, code.c_str());
    size_t length = 0;
    const char *text = lua_gettop(lua) ? luaL_tolstring(lua, -1, &length) : "";
    std::string said = (failed ? "error: " : "") + std::string(text, length);
    lua_settop(lua, 0);
    return said;
}

// frame(path): what it shows, as a picture in a file.
int frame(lua_State *lua)
{
    FILE *file = std::fopen(luaL_checkstring(lua, 1), "wb");
    if (!file)
        return luaL_error(lua, "no file");
    lua_getglobal(lua, "colour");
    lua_call(lua, 0, 3);
    std::fprintf(file, "P6 %d %d 255\n", WIDTH, HEIGHT);
    for (int i = 0; i < WIDTH * HEIGHT; i++)
        for (int part = -3; part < 0; part++)
            std::fputc(static_cast<int>(lua_tointeger(lua, part)), file);
    lua_pushstring(lua, std::fclose(file) == 0 ? "drawn" : "not drawn");
    return 1;
}

lua_State *open_lua()
{
    lua_State *lua = luaL_newstate();
    luaL_openlibs(lua);
    lua_register(lua, "frame", frame);
    if (luaL_dofile(lua, (assets() + "/lua/main.lua").c_str())) {
        std::fprintf(stderr, "%s\n", lua_tostring(lua, -1));
        std::exit(3);
    }
    return lua;
}

sockaddr_un address_in(const std::string &run)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (run + "/control.sock").c_str(), sizeof address.sun_path - 1);
    return address;
}

std::string read_all(int fd)
{
    std::string text;
    char piece[4096];
    for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;)
        text.append(piece, static_cast<size_t>(n));
    return text;
}

int ask(const std::string &run, const std::string &code)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = address_in(run);
    if (connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) < 0)
        return 2;
    if (write(fd, code.data(), code.size()) < 0)
        return 2;
    shutdown(fd, SHUT_WR);
    std::printf("%s\n", read_all(fd).c_str());
    return 0;
}

void show()
{
#ifdef LANTERN_WINDOW
    if (SDL_Init(SDL_INIT_EVERYTHING) < 0) {
        std::fprintf(stderr, "SDL: %s\n", SDL_GetError());
        std::exit(4);
    }
    SDL_Window *window = SDL_CreateWindow("lantern", 0, 0, WIDTH * 10, HEIGHT * 10, SDL_WINDOW_OPENGL);
    if (!window || !SDL_GL_CreateContext(window)) {
        std::fprintf(stderr, "SDL: %s\n", SDL_GetError());
        std::exit(4);
    }
    SDL_GL_SwapWindow(window);
    std::printf("window on %s\n", SDL_GetCurrentVideoDriver());
#endif
}

int serve(const std::string &run)
{
    std::signal(SIGTERM, [](int) { ended = 1; });
    lua_State *lua = open_lua();
    show();
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = address_in(run);
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) < 0 || listen(listener, 8) < 0)
        return 2;
    if (FILE *up = std::fopen((run + "/up").c_str(), "w"))
        std::fclose(up);
    std::printf("lantern is lit\n");
    std::fflush(stdout);
    while (!ended) {
        pollfd waiting{listener, POLLIN, 0};
        if (poll(&waiting, 1, 50) <= 0)
            continue;
        int fd = accept(listener, nullptr, nullptr);
        std::string said = evaluate(lua, read_all(fd));
        if (write(fd, said.data(), said.size()) < 0)
            std::fprintf(stderr, "nobody listens\n");
        close(fd);
    }
    lua_close(lua);
    std::printf("lantern is out\n");
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() == 3 && words[0] == "--ask")
        return ask(words[1], words[2]);
    if (words.size() == 2 && words[0] == "--run") {
        std::printf("%s\n", evaluate(open_lua(), words[1]).c_str());
        return 0;
    }
    return words.size() == 1 ? serve(words[0]) : 64;
}
